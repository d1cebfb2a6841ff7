// The timeline: a canvas over the rows in view. The wheel zooms with Ctrl or over the ruler, dragging selects, a click opens details.

import { Canvas, Tip, color, isDark, legendEntry } from "../dom.ts";
import { cut, cutBeforeNumber, duration, grouped, harmless, pattern, shortened } from "../format.ts";
import { exactTime, readableRange } from "../state.ts";
import { axis } from "../time.ts";
import { make } from "../dom.ts";
import { type Kind, type TileRow, type TrackList, unit } from "./api.ts";
import { nameNumber, paletteColor } from "./palette.ts";
import { type Counter, valueText } from "../lines.ts";
import { Lines } from "./lines.ts";
import { type Frame, type Wake, drawMarks, drawWakes, markText, marked, wakeAt } from "./marks.ts";
import { ActiveThreads } from "./active.ts";
import { BAND, CALL, GAP, HEAD, LINE, QUIET, type Row, Rows, TICKS, pinOf } from "./rows.ts";
import { type Shown, Tiles } from "./tiles.ts";
import { MOST_PINS, type View } from "./view.ts";

const RULER = 24;
const FONT = "11px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";
const PLAIN = "11px system-ui, 'DejaVu Sans', sans-serif";
const STATE_COLORS: Record<string, string> = {
  running: "running", runnable: "runnable", preempted: "runnable", uninterruptible: "blocked", interruptible: "sleeping",
};
/** Sleeping is a thin line: most threads sleep most of the time. */
const THIN = new Set(["interruptible", "idle", "parked", "stopped", "dead"]);

/** What a click means: rows of a table in a range of time. */
export interface Place {
  kind: Exclude<Kind, "cpus">;
  id: number;
  from: number;
  to: number;
  depth?: number;
  /** For the title of the details. */
  title: string;
}

interface Hit {
  lines: string[];
  place: Place | null;
  /** Begin and end of what is drawn by itself: marks snap to them. */
  ends?: [number, number];
}

/** Pixels to an end at which a mark takes it. */
const SNAP = 6;
/** The part of the picture that pinned rows may take. */
const MOST_PINNED = 0.6;

/** First place of a sorted list with a value above. */
function upper(list: number[], value: number): number {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle]! > value) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The states by their colors, in the order of the colors; the rest is "other". */
function legendOf(states: string[]): HTMLElement[] {
  const colors = [...new Set(Object.values(STATE_COLORS))];
  const entries = colors.map((name) => [name, states.filter((state) => STATE_COLORS[state] === name).join(", ")] as const);
  const hasOther = states.some((state) => STATE_COLORS[state] === undefined);
  return [...entries, ...(hasOther ? [["other", "other"] as const] : [])]
    .filter(([, text]) => text !== "").map(([name, text]) => legendEntry(`var(--state-${name})`, text));
}

export class Timeline {
  readonly element = make("div", { id: "timeline" });
  /** The colors of the states of threads. */
  readonly legend = make("span", { class: "legend quiet", id: "states" });
  readonly status = make("span", { class: "quiet", id: "count", "aria-live": "polite" });
  private readonly canvas = new Canvas("Timeline. w and s zoom, a and d pan, arrow keys scroll, drag selects", 300);
  private readonly spacer = make("div");
  private readonly counts = make("ul", { class: "hidden", id: "rows", "aria-label": "Events in view by row" });
  readonly tiles = new Tiles(() => this.draw());
  private readonly lines = new Lines(() => this.draw());
  private pointer: [number, number] | null = null;
  private wakes: Wake[] = [];
  private rows: Rows | null = null;
  private list: TrackList | null = null;
  private names = new Map<number, string>();
  private drag: { from: number; to: number; isPan: boolean; view: [number, number] } | null = null;
  private hatch: CanvasPattern | null = null;
  private hatchKey = "";
  private shown = new Map<Kind, Map<string, TileRow>>();
  private steps = new Map<Kind, Shown>();
  private readonly active = new ActiveThreads(() => this.draw());

  constructor(private readonly view: View, private readonly tip: Tip, private readonly onPlace: (place: Place) => void) {
    this.spacer.append(this.canvas.element);
    this.element.append(this.spacer, this.counts);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.element);
    this.element.addEventListener("scroll", () => this.draw());
  }

  /** Shows the rows of a trace; `grows` if it is the same one with more in it. */
  set(list: TrackList | null, counters: Counter[] = [], grows = false): void {
    this.list = list;
    this.lines.set(counters);
    if (!grows) this.wakes = [];
    this.rows = list === null ? null : new Rows(list, counters.map((counter) => counter.name), grows ? this.rows : null);
    this.names = new Map(list?.threads.map((thread) => [thread.tid, `${harmless(thread.comm ?? "[unknown]")} (${thread.tid})`]) ?? []);
    this.legend.replaceChildren(...(list?.has_states ? legendOf(list.states) : []));
    this.tiles.clear(grows);
    this.active.clear(grows);
    if (!grows) this.element.scrollTop = 0;
    this.draw();
  }

  /** Whether the rows take a small part of the picture. */
  get isLow(): boolean {
    return (this.rows?.height ?? 0) < this.element.clientHeight * 0.4;
  }

  focus(): void {
    this.canvas.element.focus();
  }

  private get left(): number {
    return Math.round(Math.min(230, Math.max(96, this.canvas.width * 0.18)));
  }

  private get wide(): number {
    return Math.max(1, this.canvas.width - this.left);
  }

  private timeAt(x: number): number {
    const { from, to } = this.view.now;
    return from + ((x - this.left) / this.wide) * (to - from);
  }

  private x(time: number): number {
    const { from, to } = this.view.now;
    return this.left + ((time - from) / (to - from)) * this.wide;
  }

  /** Height of the pinned rows, as far as they are shown. */
  private get pinnedHeight(): number {
    return Math.min(this.rows?.pinnedHeight ?? 0, Math.floor(this.canvas.height * MOST_PINNED));
  }

  /** Where a row begins in the picture. */
  private top(row: Row): number {
    return RULER + row.y + (row.group === "pinned" ? 0 : this.pinnedHeight - this.element.scrollTop);
  }

  private rowAt(y: number): Row | undefined {
    if (y < RULER) return undefined;
    const high = this.pinnedHeight;
    return y < RULER + high ? this.rows?.at(y - RULER, true) : this.rows?.at(y - RULER - high + this.element.scrollTop, false);
  }

  /** Marks the time at the pointer, or at the end of an event near it; without a pointer, the middle. */
  mark(): void {
    const [x, y] = this.pointer ?? [this.left + this.wide / 2, 0];
    const row = x < this.left ? undefined : this.rowAt(y);
    const ends = row === undefined || row.kind === "group" ? [] : this.hit(row, x, y)?.ends ?? [];
    const near = ends.filter((end) => Math.abs(this.x(end) - x) <= SNAP).sort((a, b) => Math.abs(this.x(a) - x) - Math.abs(this.x(b) - x))[0];
    this.view.change({ marks: marked(this.view.now.marks, near ?? Math.round(this.timeAt(Math.max(this.left, x)))) });
  }

  /** Pins the row at the pointer, or the selected threads; or takes them down. */
  pin(): void {
    const row = this.pointer === null ? undefined : this.rowAt(this.pointer[1]);
    const wanted = row === undefined || row.kind === "group" ? this.view.now.tids.map((tid) => `thread${tid}`) : [pinOf(row)];
    let { pins } = this.view.now;
    for (const pin of wanted) pins = pins.includes(pin) ? pins.filter((one) => one !== pin) : [...pins, pin].slice(-MOST_PINS);
    this.view.change({ pins });
  }

  /** Shows who woke whom. */
  setWakes(wakes: Wake[]): void {
    this.wakes = wakes;
    this.draw();
  }

  private frame(): Frame {
    return {
      context: this.canvas.context, x: (time) => this.x(time), left: this.left, right: this.left + this.wide,
      top: RULER + this.pinnedHeight, bottom: this.canvas.height,
    };
  }

  /** The middle of a thread's row in the picture, also outside of what is in view. */
  private middle(tid: number): number | null {
    const rows = this.rows;
    const row = rows?.pinned.find((one) => one.kind === "thread" && one.id === tid) ?? rows?.all.find((one) => one.kind === "thread" && one.id === tid);
    return row === undefined ? null : this.top(row) + BAND / 2;
  }

  private listen(): void {
    const { element } = this.canvas;
    element.addEventListener("pointerdown", (event) => {
      const [x] = this.canvas.place(event);
      if (event.button > 1 || x < this.left) return;
      event.preventDefault();
      element.focus({ preventScroll: true });
      element.setPointerCapture(event.pointerId);
      const { from, to } = this.view.now;
      this.drag = { from: x, to: x, isPan: event.shiftKey || event.button === 1, view: [from, to] };
    });
    element.addEventListener("pointermove", (event) => {
      const [x, y] = this.canvas.place(event);
      this.pointer = [x, y];
      if (this.drag === null) {
        this.hover(x, y, event);
        return;
      }
      this.drag.to = x;
      if (this.drag.isPan) {
        const [from, to] = this.drag.view;
        const shift = ((this.drag.from - x) / this.wide) * (to - from);
        this.view.show(from + shift, to + shift);
      }
      this.draw();
    });
    element.addEventListener("pointerup", (event) => {
      const { drag } = this;
      this.drag = null;
      const [x, y] = this.canvas.place(event);
      if (drag !== null && Math.abs(drag.to - drag.from) > 3) {
        if (drag.isPan) return;
        const ends = [drag.from, drag.to].map((end) => this.timeAt(Math.max(this.left, end))).sort((a, b) => a - b);
        this.view.change({ selection: [Math.floor(ends[0]!), Math.max(Math.floor(ends[0]!) + 1, Math.ceil(ends[1]!))], tab: "selection" });
        return;
      }
      this.click(x, y, event.ctrlKey || event.metaKey);
    });
    element.addEventListener("pointerleave", () => {
      this.pointer = null;
      this.tip.hide();
    });
    element.addEventListener("wheel", (event) => {
      const [x, y] = this.canvas.place(event);
      if (event.ctrlKey || event.metaKey || y < RULER) {
        event.preventDefault();
        const place = Math.max(0, Math.min(1, (x - this.left) / this.wide));
        this.view.zoom(1.0015 ** Math.max(-400, Math.min(400, event.deltaY)), place);
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        this.view.pan((event.deltaX || event.deltaY) / this.wide);
      }
    }, { passive: false });
  }

  private click(x: number, y: number, adds: boolean): void {
    const row = this.rowAt(y);
    if (row === undefined) return;
    if (row.kind === "group") {
      this.rows?.toggle(row.group);
      this.draw();
      return;
    }
    if (x < this.left) {
      if (row.kind !== "thread") return;
      const { tids } = this.view.now;
      const others = adds ? tids.filter((tid) => tid !== row.id) : [];
      this.view.change({ tids: tids.includes(row.id) ? others : [...others, row.id] });
      return;
    }
    const hit = this.hit(row, x, y);
    if (hit?.place != null) this.onPlace(hit.place);
  }

  private hover(x: number, y: number, event: PointerEvent): void {
    const row = this.rowAt(y);
    const hit = row === undefined || row.kind === "group" ? null : x < this.left ? { lines: [row.name], place: null } : this.hit(row, x, y);
    this.canvas.element.style.cursor = row?.kind === "group" || (row?.kind === "thread" && x < this.left) || hit?.place != null ? "pointer" : "crosshair";
    const wake = x < this.left ? null : wakeAt(this.frame(), this.wakes, x);
    if (wake !== null) this.tip.show([`${wake.by} wakes ${this.names.get(wake.woken) ?? `thread ${wake.woken}`}`, `at ${exactTime(Math.max(0, wake.time))}`], event);
    else if (hit === null) this.tip.hide();
    else this.tip.show([...hit.lines, ...(x < this.left ? [] : [`at ${exactTime(Math.max(0, Math.round(this.timeAt(x))))}`])], event);
  }

  /** The tile's row of a kind. */
  private tileRow(kind: Kind, id: number, depth = 0): TileRow | undefined {
    return this.shown.get(kind)?.get(`${id} ${depth}`);
  }

  /** What is drawn at a place. */
  private hit(row: Row, x: number, y: number): Hit | null {
    if (row.kind === "cpu") return this.list?.has_states ? this.hitBox("cpus", row, x) : this.hitBin("cpusamples", row, x);
    if (row.kind === "event") return this.hitBin("events", row, x);
    if (row.kind === "counter") return { lines: [row.name, ...this.lines.at(row.id, this.timeAt(x))], place: null };
    let top = this.top(row);
    if (this.list?.has_states) {
      if (y < top + BAND) return this.hitBox("states", row, x);
      top += BAND;
    }
    if ((row.thread?.samples ?? 0) > 0) {
      if (y < top + TICKS) return this.hitBin("samples", row, x);
      top += TICKS;
    }
    return this.hitBox("calls", row, x, Math.floor((y - top) / CALL));
  }

  private binAt(kind: Kind, tileRow: TileRow, x: number): number {
    const shown = this.steps.get(kind)!;
    const bin = Math.floor((this.timeAt(x) - shown.from) / shown.step);
    let best = -1;
    // A tick is as narrow as a pixel: one near the pointer counts.
    for (let near = upper(tileRow.x, bin - 4); near < tileRow.x.length && tileRow.x[near]! <= bin + 4; near++) {
      if (best < 0 || Math.abs(tileRow.x[near]! - bin) < Math.abs(tileRow.x[best]! - bin)) best = near;
    }
    return best;
  }

  private hitBin(kind: "events" | "samples" | "cpusamples", row: Row, x: number): Hit | null {
    const tileRow = this.tileRow(kind, row.id);
    const shown = this.steps.get(kind);
    if (tileRow === undefined || shown === undefined) return { lines: [row.name], place: null };
    const at = this.binAt(kind, tileRow, x);
    if (at < 0) return { lines: [row.name], place: null };
    const count = tileRow.n[at]!;
    const begin = shown.from + tileRow.x[at]! * shown.step;
    const [from, to] = count === 1 ? [begin + tileRow.at![at]!, begin + tileRow.at![at]! + 1] : [begin, begin + shown.step];
    const noun = kind === "events" ? "event" : "sample";
    return {
      lines: [row.name, `${grouped(count)} ${noun}${count === 1 ? "" : "s"}${count === 1 ? "" : ` in ${duration(shown.step)}`}`],
      place: { kind, id: row.id, from, to, title: row.name },
      ends: [from, count === 1 ? from : to],
    };
  }

  private hitBox(kind: "states" | "cpus" | "calls", row: Row, x: number, depth = 0): Hit | null {
    const tileRow = this.tileRow(kind, row.id, depth);
    const shown = this.steps.get(kind);
    if (tileRow === undefined || shown === undefined) return { lines: [row.name], place: null };
    const time = this.timeAt(x);
    const at = upper(tileRow.t, time) - 1;
    const place = (begin: number, end: number, tid: number): Place | null =>
      kind === "calls" ? { kind, id: row.id, depth, from: begin, to: end, title: row.name }
        : { kind: "states", id: tid, from: begin, to: end, title: this.names.get(tid) ?? `thread ${tid}` };
    if (at >= 0 && time < tileRow.t[at]! + Math.max(shown.step, tileRow.d![at]!)) {
      const [begin, length] = [tileRow.t[at]!, tileRow.d![at]!];
      const what = kind === "calls" ? harmless(shown.tile.names![tileRow.f![at]!]!)
        : kind === "cpus" ? this.names.get(tileRow.w![at]!) ?? `thread ${tileRow.w![at]}`
          : `${this.list!.states[tileRow.s![at]!]}${tileRow.c![at]! >= 0 ? `, CPU ${tileRow.c![at]}` : ""}`;
      return { lines: [what, length < 0 ? "duration unknown" : duration(length), row.name], place: place(begin, begin + 1, kind === "cpus" ? tileRow.w![at]! : row.id), ends: [begin, begin + Math.max(0, length)] };
    }
    const near = this.binAt(kind, tileRow, x);
    if (near < 0) return { lines: [row.name], place: null };
    const bin = tileRow.x[near]!;
    const [from, to] = [shown.from + bin * shown.step, shown.from + (bin + 1) * shown.step];
    if (kind === "calls") {
      const count = tileRow.n[near]!;
      return { lines: [row.name, `${grouped(count)} call${count === 1 ? "" : "s"}, ${duration(tileRow.sum![near]!)} in ${duration(shown.step)}`], place: place(from, to, row.id) };
    }
    const about = (share: number) => `${shown.step > 32 ? "about " : ""}${duration(share * unit(shown.step))} of ${duration(shown.step)}`;
    // The mean of what was read of some steps.
    const note = (shown.tile.about ?? 1000) < 1000 ? ["from a part of this time"] : [];
    if (kind === "cpus") {
      const tid = tileRow.y![near]!;
      return { lines: [row.name, `mostly ${this.names.get(tid) ?? `thread ${tid}`}`, `used ${about(tileRow.share![near]!)}`, ...note], place: place(from, to, tid) };
    }
    const lines = Object.entries(tileRow.shares!).filter(([, shares]) => shares[near]! > 0)
      .map(([state, shares]) => `${this.list!.states[Number(state)]!}: ${about(shares[near]!)}`);
    return { lines: [row.name, ...lines, ...note], place: place(from, to, row.id) };
  }

  /** Places the rows. Returns by how much the first row in view has moved. */
  private layout(): number {
    const { rows, list } = this;
    if (rows === null || list === null) return 0;
    const { trace, from, to, filter, pins, tids } = this.view.now;
    const scroll = this.element.scrollTop;
    const first = scroll === 0 ? undefined : rows.all.find((row) => row.y + row.height > scroll);
    rows.layout(filter, pins, this.active.of(trace, from, to), tids);
    const now = first === undefined ? undefined : rows.all.find((row) => row.kind === first.kind && row.group === first.group && row.id === first.id);
    return first === undefined || now === undefined ? 0 : now.y - first.y;
  }

  /** Draws, and asks for what is missing. */
  draw(): void {
    const high = this.element.clientHeight;
    const shift = this.layout();
    const pinned = Math.min(this.rows?.pinnedHeight ?? 0, Math.floor(high * MOST_PINNED));
    const all = (this.rows?.height ?? 0) + pinned;
    this.spacer.style.height = `${Math.max(high, all + RULER)}px`;
    // What is looked at stays where it is.
    if (shift !== 0 && this.element.scrollTop > 0) this.element.scrollTop += shift;
    if (high === 0 || !this.canvas.fit(high)) return;
    const { context, width } = this.canvas;
    const { from, to, selection, tids } = this.view.now;
    const { left, wide } = this;
    const scroll = this.element.scrollTop;
    context.font = PLAIN;
    const others = this.rows?.all.filter((row) => row.y + row.height > scroll && row.y < scroll + high - RULER - pinned) ?? [];
    const above = this.rows?.pinned.filter((row) => row.y < pinned) ?? [];
    const visible = [...above, ...others];
    this.load(visible);
    const part = (rows: Row[], top: number, bottom: number) => {
      context.save();
      context.beginPath();
      context.rect(0, top, width, bottom - top);
      context.clip();
      for (const row of rows) this.drawRow(row, this.top(row));
      if (top === RULER + pinned) this.drawLosses(high);
      context.fillStyle = color("line");
      context.fillRect(left - 1, top, 1, bottom - top);
      this.drawNames(rows, tids);
      context.restore();
    };
    part(others, RULER + pinned, high);
    if (pinned > 0) {
      part(above, RULER, RULER + pinned);
      context.fillStyle = color("accent");
      context.fillRect(0, RULER + pinned - 2, width, 1.5);
    }
    context.fillStyle = color("ground");
    context.fillRect(0, 0, width, RULER);
    context.font = PLAIN;
    context.textBaseline = "top";
    axis(context, left, wide, from, to, RULER - 5, true);
    context.fillStyle = color("quiet");
    context.textAlign = "left";
    context.fillText(readableRange(Math.max(0, from), to), 6, 6, left - 12);
    if (selection !== null || (this.drag !== null && !this.drag.isPan)) {
      const ends = this.drag !== null && !this.drag.isPan ? [this.drag.from, this.drag.to].sort((a, b) => a - b) : selection!.map((end) => this.x(end));
      const [begin, end] = [Math.max(left, ends[0]!), Math.min(width, ends[1]!)];
      context.fillStyle = color("veil");
      context.fillRect(left, 0, Math.max(0, Math.min(begin, width) - left), high);
      context.fillRect(Math.max(left, end), 0, Math.max(0, width - Math.max(left, end)), high);
      context.fillStyle = color("focus");
      if (ends[0]! >= left && ends[0]! <= width) context.fillRect(ends[0]!, 0, 1.5, high);
      if (ends[1]! >= left && ends[1]! <= width) context.fillRect(ends[1]! - 1, 0, 1.5, high);
    }
    context.font = PLAIN;
    drawWakes(this.frame(), this.wakes, (tid) => this.middle(tid));
    drawMarks(this.frame(), this.view.now.marks, RULER);
    this.count(visible);
  }

  /** Asks for the tiles of the rows in view. */
  private load(visible: Row[]): void {
    const ofKind = (kind: Row["kind"]) => [...new Map(visible.filter((row) => row.kind === kind).map((row) => [row.id, row])).values()];
    const threads = ofKind("thread");
    const ids = (kind: Kind): number[] => {
      switch (kind) {
        case "cpus": return this.list!.has_states ? ofKind("cpu").map((row) => row.id) : [];
        case "cpusamples": return this.list!.has_states ? [] : ofKind("cpu").map((row) => row.id);
        case "events": return ofKind("event").map((row) => row.id);
        case "states": return this.list!.has_states ? threads.map((row) => row.id) : [];
        case "samples": return threads.filter((row) => row.thread!.samples > 0).map((row) => row.id);
        case "calls": return threads.filter((row) => row.thread!.calls > 0).map((row) => row.id);
      }
    };
    const { trace, from, to } = this.view.now;
    if (this.list !== null) this.lines.load(trace, from, to, this.wide, ofKind("counter").map((row) => row.id));
    for (const kind of ["events", "samples", "cpusamples", "calls", "cpus", "states"] as const) {
      const wanted = this.list === null ? [] : ids(kind);
      const shown = wanted.length === 0 ? null : this.tiles.of(kind, trace, from, to, this.wide, wanted);
      if (wanted.length === 0) this.tiles.forget(kind);
      if (shown === null) {
        this.shown.delete(kind);
        this.steps.delete(kind);
      } else if (this.steps.get(kind) !== shown) {
        this.steps.set(kind, shown);
        this.shown.set(kind, new Map(shown.tile.rows.map((row) => [`${row.id} ${row.depth ?? 0}`, row])));
      }
    }
  }

  /** Numbers of what begins in the steps that are in view, by row. */
  private count(visible: Row[]): void {
    const { from, to } = this.view.now;
    const lines: string[] = [];
    let all = 0;
    const of = (kind: Kind, id: number, depth: number, noun: string): number => {
      const [row, shown] = [this.tileRow(kind, id, depth), this.steps.get(kind)];
      if (row === undefined || shown === undefined || noun === "") return 0;
      const first = Math.floor(from / shown.step) * shown.step;
      const last = Math.ceil(to / shown.step) * shown.step;
      let sum = 0;
      row.x.forEach((bin, at) => {
        const begin = shown.from + bin * shown.step;
        if (begin >= first && begin < last) sum += row.n[at]!;
      });
      if (row.d !== undefined) for (const begin of row.t) if (begin >= first && begin < last) sum++;
      return sum;
    };
    const seen = new Set<string>();
    for (const row of visible) {
      // A pinned row may also be in its place.
      if (row.kind !== "group" && seen.has(pinOf(row))) continue;
      seen.add(pinOf(row));
      const parts: string[] = [];
      if (row.kind === "group" && row.group.startsWith(QUIET)) lines.push(row.name);
      if (row.kind === "counter") parts.push(this.lines.summary(row.id, from, to));
      const add = (kind: Kind, noun: string, depths = 1) => {
        let sum = 0;
        for (let depth = 0; depth < depths; depth++) sum += of(kind, row.id, depth, noun);
        if (this.steps.has(kind)) parts.push(`${sum} ${noun}`);
        all += sum;
      };
      if (row.kind === "event") add("events", "events");
      if (row.kind === "cpu") add(this.list?.has_states ? "cpus" : "cpusamples", this.list?.has_states ? "periods" : "samples");
      if (row.kind === "thread") {
        if (this.list?.has_states) add("states", "periods");
        if (row.thread!.samples > 0) add("samples", "samples");
        if (row.thread!.calls > 0) add("calls", "calls", row.thread!.levels);
      }
      if (parts.length > 0) lines.push(`${row.name}: ${parts.join(", ")}`);
    }
    const step = Math.max(0, ...[...this.steps.values()].map((shown) => shown.step));
    const errors = [...this.tiles.errors].map(([kind, error]) => `${kind}: ${error}`);
    const cutNote = [...this.steps.values()].some((shown) => shown.tile.is_cut === true) ? ["too many calls: not all are drawn"] : [];
    const measured = markText(this.view.now.marks, exactTime);
    const { about, progress } = this.tiles;
    const part = about !== null && about < 1000 ? `${Math.max(1, Math.round(about / 10))}% of this time` : "this time alone";
    const aboutNote = about === null ? [] : [`states from ${part}, exact once all are read: ${Math.floor((progress ?? 0) / 10)}%`];
    const isEmpty = visible.length === 0 && this.list !== null && !this.view.trace.is_complete;
    const emptyNote = "nothing to show yet: no part of this recording is complete, and most tables are written at its end";
    const text = errors[0] ?? (isEmpty ? emptyNote : null) ?? (this.lines.error || null) ?? [...(measured === "" ? [] : [measured]), ...(this.tiles.isLoading ? [this.tiles.progress === null ? "reading…" : `reading all states, once: ${Math.floor(this.tiles.progress / 10)}%…`] : []), `${about === null ? "" : "about "}${grouped(all)} in these rows`, `step ${duration(step)}`, ...aboutNote, ...cutNote].join(" · ");
    if (this.status.textContent !== text) this.status.textContent = text;
    this.status.classList.toggle("bad", errors.length > 0 || this.lines.error !== "");
    const { dataset } = document.documentElement;
    if (about === null) delete dataset["about"];
    else dataset["about"] = String(about);
    if (this.tiles.isLoading || this.lines.isLoading || this.active.isLoading || this.list === null) delete dataset["drawn"];
    else {
      // For readers of the screen, and for tests: what the picture says.
      this.counts.replaceChildren(...lines.map((line) => make("li", {}, line)));
      this.counts.dataset["step"] = String(step);
      dataset["drawn"] = "";
    }
  }

  private drawNames(visible: Row[], tids: number[]): void {
    const { context, width } = this.canvas;
    context.textBaseline = "middle";
    context.textAlign = "left";
    for (const row of visible) {
      const y = this.top(row);
      if (row.kind === "group") {
        context.fillStyle = color("band");
        context.fillRect(0, y, width, HEAD - 2);
        context.fillStyle = color("ink");
        context.font = `600 ${PLAIN}`;
        const open = this.rows?.open(row.group) ?? false;
        if (row.group.startsWith(QUIET)) {
          context.font = PLAIN;
          context.fillStyle = color("quiet");
        }
        context.fillText(`${open ? "▾" : "▸"} ${cut(row.name, Math.floor((width - 20) / 6.2))}`, 6, y + HEAD / 2 - 1);
        const note = ["CPUs", "Events", "Counters"].includes(row.group) || row.group.startsWith(QUIET) || row.id === 1 ? "" : `${grouped(row.id)} threads`;
        context.font = PLAIN;
        context.fillStyle = color("quiet");
        context.textAlign = "right";
        context.fillText(note, width - 8, y + HEAD / 2 - 1);
        context.textAlign = "left";
        continue;
      }
      context.fillStyle = color("ground");
      context.fillRect(0, y, this.left - 1, row.height);
      const isChosen = row.kind === "thread" && tids.includes(row.id);
      if (isChosen) {
        context.fillStyle = color("chosen");
        context.fillRect(0, y, this.left - 1, row.height - 1);
      }
      const isPinned = this.view.now.pins.includes(pinOf(row));
      // A process of one thread begins where the lines of others do.
      const isProcess = row.isAlone === true && !isPinned;
      context.font = isChosen || isProcess ? `600 ${PLAIN}` : PLAIN;
      context.fillStyle = color("ink");
      context.fillText(cutBeforeNumber(row.name, Math.floor((this.left - 22) / 5.9)), isProcess ? 6 : 16, y + BAND / 2 + 1, this.left - 20);
      if (isPinned) {
        context.fillStyle = color("accent");
        context.fillRect(5, y + 4, 5, 8);
      }
      if (row.kind === "counter") {
        const [low, high] = this.lines.scale(row.id, this.view.now.from, this.view.now.to);
        const { unit } = this.lines.counters[row.id]!;
        context.fillStyle = color("quiet");
        context.fillText(cut(low === high ? "" : `${low < 0 ? valueText(low, "") : "0"} to ${valueText(high, unit)}`, Math.floor((this.left - 22) / 5.6)), 16, y + BAND / 2 + 15, this.left - 20);
      }
    }
  }

  private drawRow(row: Row, y: number): void {
    if (row.kind === "group") return;
    const { context } = this.canvas;
    if (row.kind === "cpu") {
      if (this.list!.has_states) this.drawBoxes("cpus", row, y, BAND);
      else this.drawBins("cpusamples", row, y, BAND);
      return;
    }
    if (row.kind === "event") {
      this.drawBins("events", row, y, BAND);
      return;
    }
    if (row.kind === "counter") {
      const { from, to } = this.view.now;
      this.lines.draw(context, row.id, (time) => this.x(time), from, to, { left: this.left, right: this.left + this.wide, top: y, height: LINE });
      return;
    }
    let top = y;
    if (this.list!.has_states) {
      this.drawBoxes("states", row, top, BAND);
      top += BAND;
    }
    if (row.thread!.samples > 0) {
      this.drawBins("samples", row, top + 1, TICKS - 1);
      top += TICKS;
    }
    for (let depth = 0; depth < row.thread!.levels && top < y + row.height - GAP; depth++, top += CALL) this.drawBoxes("calls", row, top, CALL - 1, depth);
    context.globalAlpha = 1;
  }

  private hatching(): CanvasPattern | string {
    const key = `${isDark()}`;
    if (this.hatch !== null && this.hatchKey === key) return this.hatch;
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const context = tile.getContext("2d")!;
    context.strokeStyle = color("loss");
    context.beginPath();
    for (const shift of [-6, 0, 6]) {
      context.moveTo(shift, 6);
      context.lineTo(shift + 6, 0);
    }
    context.stroke();
    this.hatchKey = key;
    return (this.hatch = this.canvas.context.createPattern(tile, "repeat")) ?? color("loss");
  }

  /** Numbers of events: a tick for one, higher for more in a step. */
  private drawBins(kind: Kind, row: Row, y: number, height: number): void {
    const { context } = this.canvas;
    context.fillStyle = color("band");
    context.fillRect(this.left, y, this.wide, height);
    const [tileRow, shown] = [this.tileRow(kind, row.id), this.steps.get(kind)];
    if (tileRow === undefined || shown === undefined) return;
    const most = Math.max(1, ...this.inView(tileRow, shown).map((at) => tileRow.n[at]!));
    const pixel = (shown.step / (this.view.now.to - this.view.now.from)) * this.wide;
    context.fillStyle = color("accent");
    for (const at of this.inView(tileRow, shown)) {
      const count = tileRow.n[at]!;
      const time = shown.from + tileRow.x[at]! * shown.step + (count === 1 ? tileRow.at![at]! : 0);
      const high = most === 1 ? height : Math.max(3, (Math.log1p(count) / Math.log1p(most)) * height);
      context.fillRect(Math.max(this.left, this.x(time)), y + height - high, Math.max(1, count === 1 ? 1 : pixel), high);
    }
  }

  /** Places of the steps in view. */
  private inView(tileRow: TileRow, shown: Shown): number[] {
    const { from, to } = this.view.now;
    const first = upper(tileRow.x, (from - shown.from) / shown.step - 1);
    const last = upper(tileRow.x, (to - shown.from) / shown.step);
    return Array.from({ length: last - first }, (_, index) => first + index);
  }

  private fill(kind: Kind, value: number): string {
    if (kind === "states") return color(`state-${STATE_COLORS[this.list!.states[value]!] ?? "other"}`);
    // The same function and the same thread has the same color everywhere.
    return paletteColor(value);
  }

  private drawBoxes(kind: "states" | "cpus" | "calls", row: Row, y: number, height: number, depth = 0): void {
    const { context } = this.canvas;
    if (kind !== "calls") {
      context.fillStyle = color("band");
      context.fillRect(this.left, y, this.wide, height);
    }
    const [tileRow, shown] = [this.tileRow(kind, row.id, depth), this.steps.get(kind)];
    if (tileRow === undefined || shown === undefined) return;
    const { from, to, filter, tids } = this.view.now;
    const expression = kind === "calls" ? pattern(filter) : null;
    const right = this.left + this.wide;
    const pixel = (shown.step / (to - from)) * this.wide;
    // What is shorter than a step: its share of the step.
    const bar = (at: number, share: number, used: number): number => {
      const begin = Math.max(this.left, this.x(shown.from + tileRow.x[at]! * shown.step));
      const high = Math.max(kind === "calls" ? 3 : 0.5, Math.min(1, share) * height);
      context.fillRect(begin, y + height - used - high, Math.max(1, pixel), high);
      return used + high;
    };
    const ofShare = unit(shown.step) / shown.step;
    // What a part of the time stands for is pale.
    const strong = (shown.tile.about ?? 1000) < 1000 ? 0.55 : 1;
    const inView = this.inView(tileRow, shown);
    if (kind === "states") {
      const used = new Map<number, number>();
      context.globalAlpha = strong;
      for (const [state, shares] of Object.entries(tileRow.shares ?? {})) {
        context.fillStyle = this.fill(kind, Number(state));
        for (const at of inView) if (shares[at]! > 0) used.set(at, bar(at, shares[at]! * ofShare, used.get(at) ?? 0));
      }
    } else {
      context.fillStyle = color("accent");
      for (const at of inView) {
        const tid = tileRow.y?.[at] ?? 0;
        if (kind === "cpus") {
          context.globalAlpha = tids.length > 0 && !tids.includes(tid) ? 0.25 : strong;
          context.fillStyle = this.fill(kind, tid);
        }
        bar(at, kind === "cpus" ? tileRow.share![at]! * ofShare : tileRow.sum![at]! / shown.step, 0);
      }
    }
    const letter = 6.65;
    const texts: [string, number, number][] = [];
    // Of boxes at one level, all that begin before the range and end in it are a few before it.
    for (let at = Math.max(0, upper(tileRow.t, from) - 1); at < tileRow.t.length && tileRow.t[at]! < to; at++) {
      const [time, length] = [tileRow.t[at]!, tileRow.d![at]!];
      const [begin, end] = [Math.max(this.left, this.x(time)), Math.min(right, this.x(time + Math.max(length, 0)))];
      if (end < this.left) continue;
      const wide = Math.max(1, end - begin - (end - begin > 4 ? 0.5 : 0));
      let label = "";
      context.globalAlpha = 1;
      if (kind === "calls") {
        const name = shown.tile.names![tileRow.f![at]!]!;
        label = name;
        context.fillStyle = this.fill(kind, nameNumber(name));
        if (expression !== null && expression.test(name)) context.fillStyle = color("hit");
      } else if (kind === "cpus") {
        const tid = tileRow.w![at]!;
        label = this.names.get(tid) ?? `thread ${tid}`;
        context.fillStyle = this.fill(kind, tid);
        context.globalAlpha = tids.length > 0 && !tids.includes(tid) ? 0.25 : 1;
      } else {
        const state = this.list!.states[tileRow.s![at]!]!;
        label = state === "interruptible" ? "" : state;
        context.fillStyle = this.fill(kind, tileRow.s![at]!);
        if (THIN.has(state)) {
          context.fillRect(begin, y + height - 4, wide, 4);
          continue;
        }
      }
      context.fillRect(begin, y, wide, height);
      // A call without an end is a tick with a line to the right.
      if (length < 0) context.fillRect(begin, y, Math.min(8, right - begin), 2);
      const letters = Math.floor((wide - 6) / letter);
      if (letters >= 3) texts.push([kind === "calls" ? shortened(harmless(label), letters) : cut(harmless(label), letters), begin + 3, wide - 6]);
    }
    context.globalAlpha = 1;
    context.font = FONT;
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillStyle = color("box-ink");
    for (const [text, x, wide] of texts) context.fillText(text, x, y + height / 2 + 0.5, wide);
  }

  /** Where events are missing, and where the recording was paused. */
  private drawLosses(high: number): void {
    const losses = this.list?.losses ?? [];
    if (losses.length === 0) return;
    const { context, width } = this.canvas;
    const { from, to } = this.view.now;
    context.fillStyle = this.hatching();
    let paused: number | null = null;
    for (const [time, , , reason] of losses) {
      const begin = reason === "resumed" && paused !== null ? paused : time;
      paused = reason === "paused" ? time : null;
      if (time < from || begin > to) continue;
      const [x, end] = [Math.max(this.left, this.x(begin)), Math.min(width, this.x(time))];
      context.fillRect(x - 3, RULER, Math.max(6, end - x), high);
    }
  }
}
