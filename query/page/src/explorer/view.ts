// What is looked at: the trace, the range of time, the selection. The fragment of the URL has all of it, so that a link shows the same.

import type { Meta, Trace } from "./api.ts";
import { exactTime, parsedTime } from "../state.ts";

/** Changes that follow each other faster are one step of the browser's history. */
const STEP_MS = 700;
/** Zooming ends at a range of this many nanoseconds. */
export const SHORTEST = 64;
/** The tabs of the drawer. */
export const TABS = ["details", "selection", "sql"];

export interface Viewed {
  trace: number;
  from: number;
  to: number;
  /** Selected time. */
  selection: [number, number] | null;
  /** Selected threads. */
  tids: number[];
  /** Filter of the rows. */
  filter: string;
  tab: string;
  /** Times that are marked: none, one or two. */
  marks: number[];
  /** Rows that stay above the others. */
  pins: string[];
  /** What the details are of: kind, number of the row, time, depth. */
  at: string;
  /** Report of the tab "selection". */
  panel: string;
  /** What the stacks of the flame graph are of: "" (samples), `off_cpu`, or an event; and the path to the frame that it is zoomed to. */
  of: string;
  zoom: string[];
  /** Function whose code is shown, and its file if known. */
  code: string;
  module: string;
  /** Sampled events whose shares functions and code have, side by side; without any, the server chooses. */
  ev: string[];
  /** What the selection is compared with: trace, begin, end; and how, as the options of `diff`. */
  base: [number, number, number] | null;
  by: string;
  metric: string;
  per: string;
  sql: string;
  /** How its rows are shown: "" is a table. */
  chart: string;
}

/** Reports on the selection, as the server names them. */
export const PANELS = [
  "functions", "flame graph", "code", "threads", "events", "findings", "calls", "durations", "syscalls", "waits", "wakers", "locks", "io", "critical path", "compare",
];
/** Frames of a path in the URL. */
const DEEPEST = 40;
export const MOST_PINS = 30;
/** Events side by side, as many as the server takes. */
export const MOST_EVENTS = 8;

const signed = (ns: number) => (ns < 0 ? `-${exactTime(-ns)}` : exactTime(ns));

const signedTime = (text: string) => (text.startsWith("-") ? -(parsedTime(text.slice(1)) ?? NaN) : parsedTime(text) ?? NaN);

function range(text: string | null): [number, number] | null {
  const [from, to] = (text ?? "").split("..").map(signedTime);
  return from !== undefined && to !== undefined && to > from ? [from, to] : null;
}

export class View {
  now: Viewed;
  private lastStep = -Infinity;
  private isPending = false;
  private readonly listeners: (() => void)[] = [];

  constructor(readonly meta: Meta) {
    this.now = this.read();
    const follow = () => {
      if (location.hash.slice(1) === this.fragment()) return;
      this.now = this.read();
      this.notify();
    };
    window.addEventListener("hashchange", follow);
    window.addEventListener("popstate", follow);
  }

  get trace(): Trace {
    return this.meta.traces[this.now.trace]!;
  }

  /** Calls `listener` after changes, at most once a frame. */
  onChange(listener: () => void): void {
    this.listeners.push(listener);
  }

  change(part: Partial<Viewed>): void {
    Object.assign(this.now, part);
    const fragment = this.fragment();
    if (location.hash.slice(1) !== fragment) {
      const time = performance.now();
      const url = fragment === "" ? location.pathname : `#${fragment}`;
      if (time - this.lastStep < STEP_MS) history.replaceState(null, "", url);
      else history.pushState(null, "", url);
      this.lastStep = time;
    }
    this.notify();
  }

  /** Shows a range, as near as it is in the trace. */
  show(from: number, to: number): void {
    const { length } = this.trace;
    const wide = Math.max(SHORTEST, Math.min(length, Math.round(to - from)));
    const begin = Math.round(Math.max(0, Math.min(length - wide, from)));
    this.change({ from: begin, to: begin + wide });
  }

  zoom(factor: number, place: number): void {
    const { from, to } = this.now;
    const wide = Math.max(SHORTEST, Math.min(this.trace.length, (to - from) * factor));
    const begin = from + (to - from - wide) * place;
    this.show(begin, begin + wide);
  }

  pan(part: number): void {
    const { from, to } = this.now;
    const shift = (to - from) * part;
    this.show(from + shift, to + shift);
  }

  /** Opens a trace as a whole. */
  open(trace: number): void {
    const length = this.meta.traces[trace]?.length ?? 1;
    this.change({ trace, from: 0, to: Math.max(SHORTEST, length), selection: null, tids: [], marks: [], pins: [], at: "", ev: [] });
  }

  private notify(): void {
    if (this.isPending) return;
    this.isPending = true;
    requestAnimationFrame(() => {
      this.isPending = false;
      for (const listener of this.listeners) listener();
    });
  }

  fragment(): string {
    const { trace, from, to, selection, tids, filter, tab, marks, pins, at, panel, of, zoom, code, module, ev, base, by, metric, per, sql, chart } = this.now;
    const parts: string[] = [];
    const add = (name: string, value: string) => parts.push(`${name}=${encodeURIComponent(value).replaceAll("%2C", ",")}`);
    if (trace > 0) add("trace", String(trace));
    if (from > 0 || to < this.trace.length) add("t", `${signed(from)}..${signed(to)}`);
    if (selection !== null) add("s", `${signed(selection[0])}..${signed(selection[1])}`);
    if (tids.length > 0) add("tid", tids.join(","));
    if (filter !== "") add("q", filter);
    if (marks.length > 0) add("m", marks.map(signed).join(","));
    if (pins.length > 0) add("pin", pins.join(","));
    if (tab !== "") add("tab", tab);
    if (at !== "" && tab === "details") add("at", at);
    if (panel !== PANELS[0]) add("panel", panel);
    if (of !== "") add("of", of);
    if (zoom.length > 0 && zoom.length <= DEEPEST) add("zoom", zoom.join(";"));
    if (code !== "") add("code", code);
    if (module !== "") add("module", module);
    for (const event of ev.slice(0, MOST_EVENTS)) add("ev", event);
    if (base !== null) add("base", `${base[0]}:${signed(base[1])}..${signed(base[2])}`);
    if (by !== "") add("by", by);
    if (metric !== "") add("metric", metric);
    if (per !== "") add("per", per);
    if (sql !== "") add("sql", sql);
    if (chart !== "") add("chart", chart);
    return parts.join("&");
  }

  private readBase(text: string | null): [number, number, number] | null {
    const [trace, times] = (text ?? "").split(":");
    const ends = range(times ?? null);
    const number = Number(trace);
    return ends === null || this.meta.traces[number] === undefined ? null : [number, Math.max(0, ends[0]), ends[1]];
  }

  private read(): Viewed {
    const parts = new URLSearchParams(location.hash.slice(1).replaceAll("+", "%2B"));
    const number = Number(parts.get("trace") ?? 0);
    const trace = Number.isInteger(number) && number >= 0 && number < this.meta.traces.length ? number : 0;
    const length = Math.max(SHORTEST, this.meta.traces[trace]?.length ?? 1);
    const [from, to] = range(parts.get("t")) ?? [0, length];
    const list = (name: string) => (parts.get(name) ?? "").split(",").filter((one) => one !== "");
    const tids = (parts.get("tid") ?? "").split(",").filter((text) => /^-?\d+$/.test(text)).map(Number);
    return {
      trace, from: Math.max(0, Math.min(from, length - SHORTEST)), to: Math.min(length, Math.max(to, from + SHORTEST)), selection: range(parts.get("s")), tids,
      filter: parts.get("q") ?? "", tab: TABS.find((tab) => tab === parts.get("tab")) ?? "",
      marks: list("m").map(signedTime).filter((time) => Number.isFinite(time)).slice(0, 2), pins: list("pin").slice(0, MOST_PINS), at: parts.get("at") ?? "",
      panel: PANELS.find((panel) => panel === parts.get("panel")) ?? PANELS[0]!, of: parts.get("of") ?? "",
      zoom: (parts.get("zoom") ?? "").split(";").filter((frame) => frame !== ""), code: parts.get("code") ?? "", module: parts.get("module") ?? "",
      ev: parts.getAll("ev").filter((event) => event !== "").slice(0, MOST_EVENTS),
      base: this.readBase(parts.get("base")), by: parts.get("by") ?? "", metric: parts.get("metric") ?? "", per: parts.get("per") ?? "", sql: parts.get("sql") ?? "", chart: parts.get("chart") ?? "",
    };
  }
}
