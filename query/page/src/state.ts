// The selection, which all panels share: time, threads, search; and what is shown. It is kept in the fragment of the URL.

import { concerned, ofFragment, since } from "./axes.ts";
import { type Data, traceOf } from "./data.ts";
import { pattern } from "./format.ts";

export type View = "icicle" | "flame" | "sandwich" | "time order" | "top-down" | "bottom-up";
export const VIEWS: readonly View[] = ["icicle", "flame", "sandwich", "time order", "top-down", "bottom-up"];
/** Changes that follow each other faster are one step of the browser's history. */
const STEP_MS = 700;

export interface Selection {
  /** Slots, the end excluded; null for all time. */
  time: [number, number] | null;
  /** Nanoseconds that the tracks show; null for the selected time. */
  span: [number, number] | null;
  /** Slots that the selected time is compared with. */
  base: [number, number] | null;
  /** Indexes of threads; none for all. */
  threads: Set<number>;
  query: string;
  profile: number;
  view: View;
  /** Name of the function of the sandwich. */
  focus: string | null;
  /** Node that fills the width. */
  zoom: number;
  /** Whether a function that calls itself is one box. */
  isFolded: boolean;
}

/** Nanoseconds as an option takes them, exactly: `1.25s`. */
export function exactTime(ns: number): string {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]] as const) {
    if (ns === 0) return "0s";
    if (ns >= size || ns % size === 0) {
      const rest = (ns % size).toString().padStart(Math.log10(size), "0").replace(/0+$/, "");
      return `${Math.floor(ns / size)}${rest === "" ? "" : `.${rest}`}${unit}`;
    }
  }
  return `${ns}ns`;
}

/** A range of time for reading, to about a thousandth of its length: `0s to 7.833s`. */
export function readableRange(from: number, to: number): string {
  const step = 10 ** Math.max(0, Math.floor(Math.log10(Math.max(1, to - from))) - 3);
  const rounded = (time: number) => exactTime(Math.round(time / step) * step);
  return `${rounded(from)} to ${rounded(to)}`;
}

/** Nanoseconds of a time as {@link exactTime} writes it. */
export function parsedTime(text: string): number | null {
  const found = /^(\d+)(?:\.(\d+))?(ns|us|ms|s)$/.exec(text);
  if (found === null) return null;
  const digits = { ns: 0, us: 3, ms: 6, s: 9 }[found[3] as "ns"];
  const rest = (found[2] ?? "").padEnd(digits, "0").slice(0, digits);
  return Number(found[1]) * 10 ** digits + Number(rest === "" ? 0 : rest);
}

export class State {
  selection: Selection = {
    time: null, span: null, base: null, threads: new Set(), query: "", profile: 0, view: "icicle", focus: null, zoom: 0, isFolded: false,
  };
  private lastStep = -Infinity;
  private readonly listeners: (() => void)[] = [];
  private pending = false;

  constructor(readonly data: Data) {
    this.fromFragment();
    const follow = () => {
      if (location.hash.slice(1) !== this.fragment()) {
        this.fromFragment();
        this.notify();
      }
    };
    window.addEventListener("hashchange", follow);
    window.addEventListener("popstate", follow);
  }

  /** Calls `listener` after changes, at most once a frame. */
  onChange(listener: () => void): void {
    this.listeners.push(listener);
  }

  change(part: Partial<Selection>): void {
    // Tracks follow the selected time.
    if (part.time !== undefined) this.selection.span = null;
    Object.assign(this.selection, part);
    const fragment = this.fragment();
    const url = fragment === "" ? location.pathname + location.search : `#${fragment}`;
    if (location.hash.slice(1) !== fragment) {
      const now = performance.now();
      // A drag and a typed word are one step back.
      if (now - this.lastStep < STEP_MS) history.replaceState(null, "", url);
      else history.pushState(null, "", url);
      this.lastStep = now;
    }
    this.notify();
  }

  private notify(): void {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      for (const listener of this.listeners) listener();
    });
  }

  get slot(): number {
    return this.data.slot ?? 1;
  }

  /** The nanoseconds that tracks show. */
  shown(): [number, number] {
    const { span, time } = this.selection;
    const length = this.data.length ?? 1;
    if (span !== null) return span;
    return time === null ? [0, length] : [time[0] * this.slot, Math.max(time[0] * this.slot + 1, Math.min(length, time[1] * this.slot))];
  }

  /** Shows nanoseconds in the tracks, and selects the slots around them. */
  showSpan(from: number, to: number): void {
    const isAll = from <= 0 && to >= (this.data.length ?? 1);
    const time: [number, number] = [Math.floor(from / this.slot), Math.max(Math.floor(from / this.slot) + 1, Math.ceil(to / this.slot))];
    this.change(isAll ? { time: null, span: null } : { time, span: [from, to] });
  }

  /** The time as `--time` takes it. */
  timeText(): string | null {
    const { time } = this.selection;
    const slot = this.data.slot ?? 0;
    return time === null ? null : `${exactTime(time[0] * slot)}..${exactTime(time[1] * slot)}`;
  }

  /** The selected threads of a trace. */
  private tids(trace: number): number[] {
    return [...this.selection.threads].filter((index) => traceOf(this.data, index) === trace).map((index) => this.data.threads[index]![0]);
  }

  expression(): RegExp | null {
    return pattern(this.selection.query);
  }

  /** Whether a cell is selected. */
  filter(): (slot: number, thread: number) => boolean {
    const { time, threads } = this.selection;
    const [from, to] = time ?? [-Infinity, Infinity];
    if (threads.size === 0) return (slot) => slot >= from && slot < to;
    const isSelected = Uint8Array.from(this.data.threads, (_, index) => Number(threads.has(index)));
    return (slot, thread) => slot >= from && slot < to && isSelected[thread] === 1;
  }

  /** The share of a cell that is selected, and of it, which is of several whole slots. */
  share(time: [number, number] | null = this.selection.time): (slot: number, slots: number, thread: number) => number {
    const { threads } = this.selection;
    const [from, to] = time ?? [-Infinity, Infinity];
    const isSelected = Uint8Array.from(this.data.threads, (_, index) => Number(threads.size === 0 || threads.has(index)));
    return (slot, slots, thread) => {
      if (isSelected[thread] !== 1) return 0;
      if (slots <= 1) return slot >= from && slot < to ? 1 : 0;
      return Math.max(0, Math.min(to, slot + slots) - Math.max(from, slot)) / slots;
    };
  }

  /** A command that shows the same on the terminal; of several traces on one time axis, one for each of them. */
  command(words: string[], options: { time?: boolean; threads?: boolean; more?: string[]; trace?: number | undefined } = {}): string {
    if (this.data.axes === undefined) return this.commandOf(words, options, this.data.traces.map((trace) => trace.path), this.timeText(), this.tids(0));
    const { time, threads } = this.selection;
    const commands = concerned(this.data, options.trace, threads).flatMap((trace) => {
      const own = time === null ? null : since(this.data, trace, [time[0] * this.slot, time[1] * this.slot]);
      const range = own === null ? null : `${exactTime(own[0])}..${exactTime(own[1])}`;
      return time !== null && own === null ? [] : [this.commandOf(words, options, [this.data.traces[trace]!.path], range, this.tids(trace))];
    });
    return commands.join("; ");
  }

  private commandOf(words: string[], options: { time?: boolean; threads?: boolean; more?: string[] }, paths: string[], range: string | null, selected: number[]): string {
    const time = options.time === false ? null : range;
    const tids = options.threads === false ? [] : selected;
    const given = this.data.filters.filter((word) => {
      if (word.startsWith("--time=")) return this.selection.time === null || options.time === false;
      return !word.startsWith("--tid=") || tids.length === 0;
    });
    const all = [
      "perfquet-query", words[0] ?? "", ...paths, ...words.slice(1), ...given,
      ...(time === null ? [] : ["--time", time]), ...(tids.length === 0 ? [] : ["--tid", tids.join(",")]), ...(options.more ?? []),
    ];
    const plain = (word: string) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
    return all.map(plain).join(" ");
  }

  /** A thread in an address: its ID, after the number of its trace unless that is the first: `812`, `1:812`. */
  private threadKey(index: number): string {
    const trace = traceOf(this.data, index);
    return `${trace === 0 ? "" : `${trace}:`}${this.data.threads[index]![0]}`;
  }

  private fragment(): string {
    const { query, profile, view, focus, zoom } = this.selection;
    const parts: string[] = ofFragment(this.data);
    const add = (name: string, value: string) => parts.push(`${name}=${encodeURIComponent(value).replaceAll("%2C", ",").replaceAll("%3A", ":")}`);
    const time = this.timeText();
    if (time !== null) add("t", time);
    const { span } = this.selection;
    if (span !== null) add("span", `${exactTime(span[0])}..${exactTime(span[1])}`);
    if (this.selection.threads.size > 0) add("tid", [...this.selection.threads].map((index) => this.threadKey(index)).join(","));
    if (query !== "") add("q", query);
    if (profile > 0) add("event", this.data.profiles[profile]?.name ?? "");
    if (view !== "icicle") add("view", view);
    if (focus !== null) add("function", focus);
    if (zoom > 0) add("zoom", String(zoom));
    if (this.selection.isFolded) add("recursion", "folded");
    const { base } = this.selection;
    if (base !== null) add("base", `${exactTime(base[0] * this.slot)}..${exactTime(base[1] * this.slot)}`);
    return parts.join("&");
  }

  private fromFragment(): void {
    const parts = new URLSearchParams(location.hash.slice(1).replaceAll("+", "%2B"));
    const slot = this.data.slot ?? 0;
    const range = (name: string) => (parts.get(name) ?? "").split("..").map(parsedTime);
    const [from, to] = range("t");
    const [spanFrom, spanTo] = range("span");
    const [baseFrom, baseTo] = range("base");
    const wanted = new Set((parts.get("tid") ?? "").split(",").filter((text) => text !== ""));
    const threads = new Set<number>();
    this.data.threads.forEach((_, index) => { if (wanted.has(this.threadKey(index))) threads.add(index); });
    const profile = this.data.profiles.findIndex((one) => one.name === parts.get("event"));
    const view = VIEWS.find((view) => view === parts.get("view"));
    const zoom = Number(parts.get("zoom") ?? 0);
    const nodes = this.data.profiles[Math.max(0, profile)]?.parent.length ?? 0;
    this.selection = {
      time: from != null && to != null && slot > 0 && to > from ? [Math.floor(from / slot), Math.ceil(to / slot)] : null,
      span: spanFrom != null && spanTo != null && slot > 0 && spanTo > spanFrom ? [spanFrom, spanTo] : null,
      base: baseFrom != null && baseTo != null && slot > 0 && baseTo > baseFrom ? [Math.floor(baseFrom / slot), Math.ceil(baseTo / slot)] : null,
      threads,
      query: parts.get("q") ?? "",
      profile: Math.max(0, profile),
      view: view ?? "icicle",
      isFolded: parts.get("recursion") === "folded",
      focus: parts.get("function"),
      zoom: Number.isInteger(zoom) && zoom > 0 && zoom < nodes ? zoom : 0,
    };
  }
}
