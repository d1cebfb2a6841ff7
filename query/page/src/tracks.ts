// Tracks: what ran on each CPU, the states of threads, and their calls as boxes. They show the selected time; dragging in them
// zooms further than the slots of the other panels.

import { errors } from "./axes.ts";
import { type Calls, type Chart, type Data, STATES, type Track, traceOf } from "./data.ts";
import { Canvas, Tip, button, color, commandLine, isDark, legendEntry, make, panel, pictureButton } from "./dom.ts";
import { counted, cut, cutBeforeNumber, duration, grouped, shortened } from "./format.ts";
import { exactTime, readableRange, type State } from "./state.ts";
import { Table } from "./tables.ts";
import { axis } from "./time.ts";
import { offCpu, waitOf } from "./waits.ts";
import { drawWakes, upper, wakeOf, wakesIn } from "./wakes.ts";

/** Threads that are drawn: those that are busy longest in the time that is shown. */
const THREADS = 30;
/** CPUs and functions with a color of their own. */
const COLORS = 8;
const ROW = 15;
const GAP = 3;
const RULER = 20;
const CALL = 15;
/** More calls are not drawn one by one. */
const MOST_CALLS = 10_000;
/** More wake-ups are not drawn one by one. */
const MOST_WAKES = 300;
/** Levels of calls below a thread. */
const LEVELS = 40;
/** A canvas that is much higher is not drawn. */
const HIGHEST = 7_000;
/** Multiples of this tell apart the processes of several traces. */
const TRACE = 2 ** 32;
/** ID that stands for the threads that a CPU does not name. */
const OTHER_THREADS = -2;
/** Zooming ends at a range of this many nanoseconds. */
const SHORTEST = 100;
const FONT = "11px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";

/** States in groups, from the bottom of a row to its top. */
const GROUPS: { name: string; states: string[] }[] = [
  { name: "running", states: ["running"] },
  { name: "runnable", states: ["runnable", "preempted"] },
  { name: "blocked", states: ["uninterruptible"] },
  { name: "sleeping", states: ["interruptible"] },
  { name: "other", states: ["stopped", "idle", "parked", "dead", "unknown"] },
];
const SLEEPING = 3;
const GROUP_OF = STATES.map((state) => GROUPS.findIndex((group) => group.states.includes(state)));

interface Row {
  kind: "cpu" | "thread" | "process";
  /** Number of a CPU, index of a thread, ID of a process. */
  id: number;
  track: Track | null;
  y: number;
  /** Calls of the thread in view, and their levels; none if they are too many. */
  calls: number[];
  levels: number;
}

interface StateLine {
  thread: number;
  /** Nanoseconds by group. */
  times: number[];
}

/** Calls `visit` with every part of a track in a range: begin, end, what, and the time of it. */
export function parts(track: Track, from: number, to: number, visit: (begin: number, end: number, what: number, time: number, isMerged: boolean) => void): void {
  for (let index = upper(track.reach, from); index < track.begin.length && track.begin[index]! < to; index++) {
    const [begin, end] = [track.begin[index]!, track.begin[index]! + track.length[index]!];
    if (end > from) visit(begin, end, track.what[index]!, track.time[index]!, track.isMerged[index] === 1);
  }
}

/** Calls `visit` with the time in a range of every part of a track. A cell of merged stretches that is partly outside has its time spread evenly. */
export function spent(track: Track, from: number, to: number, visit: (what: number, time: number) => void): void {
  parts(track, from, to, (begin, end, what, time, isMerged) => {
    const inside = Math.min(end, to) - Math.max(begin, from);
    visit(what, isMerged && inside < end - begin ? (time * inside) / (end - begin) : Math.min(time, inside));
  });
}

/** Time by group of states in a range. */
function times(track: Track, from: number, to: number): number[] {
  const sums = GROUPS.map(() => 0);
  spent(track, from, to, (what, time) => { sums[GROUP_OF[what] ?? 4]! += time; });
  return sums;
}

export class Tracks {
  private readonly panel = panel("tracks", "Tracks");
  readonly element = this.panel.element;
  readonly hasSpan = true;
  private readonly canvas = new Canvas("CPUs, states of threads, and calls. Drag or + and - zoom, arrow keys move, Enter selects a thread", 200);
  private readonly legend = make("p", { class: "legend" });
  private readonly status = make("p", { class: "status", "aria-live": "polite" });
  private readonly command = commandLine(() => this.state.command(this.data.tracks?.command ?? this.calls?.durations ?? ["durations"]));
  /** What is known of a stretch that was clicked. */
  private readonly stretch = make("div", { class: "call", "aria-live": "polite" });
  /** Threads that ran longest, each with a color. */
  private readonly ranks = new Map<number, number>();
  private hatch: CanvasPattern | null = null;
  private hatchColor = "";
  private readonly table: Table<StateLine>;
  private readonly details = make("details");
  private readonly tracks: Track[];
  private readonly calls: Calls | null;
  private readonly callsOf = new Map<number, number[]>();
  private rows: Row[] = [];
  private cursor = -1;
  private drag: { from: number; to: number } | null = null;
  private readonly length: number;
  /** Wake-ups in view; none if they are too many. */
  private wakes: number[] = [];

  constructor(private readonly data: Data, private readonly state: State, private readonly tip: Tip) {
    this.tracks = data.tracks?.all ?? [];
    this.calls = data.calls !== null && data.calls.chart.begin.length > 0 ? data.calls : null;
    this.length = data.length ?? 1;
    this.calls?.chart.thread.forEach((thread, index) => {
      const known = this.callsOf.get(thread);
      if (known === undefined) this.callsOf.set(thread, [index]);
      else known.push(index);
    });
    const zoom = (factor: number) => () => this.zoom(factor, 0.5);
    this.panel.tools.append(make("div", { class: "tabs" }, button("−", "Zoom out (-)", zoom(2)), button("+", "Zoom in (+)", zoom(0.5)),
      button("selection", "Show the selected time", () => state.change({ span: null }))), pictureButton("tracks", this.canvas));
    this.rank();
    this.table = new Table<StateLine>([], 0, (line) => this.toggle(line.thread), {
      label: "States of threads", isChosen: (line) => state.selection.threads.has(line.thread), titleOf: (line) => this.threadName(line.thread),
    });
    this.details.append(make("summary", {}, "States of these threads in this time"), this.table.element);
    this.panel.body.append(this.legend, this.canvas.element, this.status, this.stretch, this.details, this.command.element);
    this.listen();
  }

  /** Whether a trace has anything to draw. */
  static has(data: Data): boolean {
    return (data.tracks?.all.length ?? 0) > 0 || (data.calls?.chart.begin.length ?? 0) > 0;
  }

  private get left(): number {
    return Math.min(200, Math.max(90, this.canvas.width * 0.18));
  }

  /** Nanoseconds from the left to the right end. */
  private get range(): [number, number] {
    return this.state.shown();
  }

  private threadName(index: number): string {
    const [tid, , comm] = this.data.threads[index]!;
    if (tid === OTHER_THREADS) return "other threads";
    return tid < 0 ? "without a thread" : `${comm ?? "[unknown]"} (${tid})`;
  }

  /** Gives the threads with the most time on CPUs a color each. */
  private rank(): void {
    const sums = new Map<number, number>();
    for (const track of this.tracks) {
      if (track.kind === "cpu") track.what.forEach((thread, index) => sums.set(thread, (sums.get(thread) ?? 0) + track.time[index]!));
    }
    [...sums].sort((a, b) => b[1] - a[1] || a[0] - b[0]).forEach(([thread], rank) => this.ranks.set(thread, rank));
  }

  private processName(key: number): string {
    const [pid, of] = [key % TRACE, Math.floor(key / TRACE)];
    const first = this.data.threads.find(([tid, , , trace]) => tid === pid && (trace ?? 0) === of);
    return first?.[2] == null ? `process ${pid}` : `${first[2]}, process ${pid}`;
  }

  /** The process of a thread: of several traces, the same ID is another process in each. */
  private processOf(thread: number): number | null {
    const pid = this.data.threads[thread]![1];
    return pid === null ? null : traceOf(this.data, thread) * TRACE + pid;
  }

  /** The threads of a process that have a row. */
  private threadsOf(process: number): number[] {
    return this.rows.filter((row) => row.kind === "thread" && this.processOf(row.id) === process).map((row) => row.id);
  }

  /** The event whose samples stand for what ran in a row of a CPU. */
  private sourceOf(row: Row): string | null {
    return row.track?.source ?? this.data.tracks?.source ?? null;
  }

  private name(row: Row): string {
    if (row.kind === "process") return this.processName(row.id);
    const trace = row.track?.trace;
    return row.kind === "cpu" ? `${trace === undefined ? "" : `${this.data.traces[trace]!.name}: `}CPU ${row.id}` : this.threadName(row.id);
  }

  private toggle(thread: number): void {
    const threads = new Set(this.state.selection.threads);
    if (!threads.delete(thread)) threads.add(thread);
    this.state.change({ threads });
  }

  /** Zooms around a place: 0 at the left end, 1 at the right one. */
  private zoom(factor: number, place: number): void {
    const [from, to] = this.range;
    const width = Math.max(SHORTEST, (to - from) * factor);
    const start = from + (to - from - width) * place;
    this.show(start, start + width);
  }

  /** Shows a range as near as it lies in the trace. */
  private show(from: number, to: number): void {
    const width = Math.min(this.length, to - from);
    const start = Math.max(0, Math.min(this.length - width, from));
    this.state.showSpan(Math.floor(start), Math.ceil(start + width));
  }

  private timeAt(x: number): number {
    const [from, to] = this.range;
    return from + Math.max(0, Math.min(1, (x - this.left) / Math.max(1, this.canvas.width - this.left))) * (to - from);
  }

  private rowAt(y: number): Row | undefined {
    return this.rows.find((row) => y >= row.y && y < row.y + ROW + row.levels * CALL + GAP);
  }

  private callAt(row: Row, x: number, y: number): number | undefined {
    const { begin, length, depth } = this.calls?.chart ?? ({} as Chart);
    const level = Math.floor((y - row.y - ROW - 1) / CALL);
    const time = this.timeAt(x);
    const near = (this.range[1] - this.range[0]) / Math.max(1, this.canvas.width - this.left);
    return level < 0 ? undefined : row.calls.find((call) => depth[call] === level && begin[call]! <= time && begin[call]! + Math.max(near, length[call]!) > time);
  }

  private listen(): void {
    const { element } = this.canvas;
    element.addEventListener("pointerdown", (event) => {
      const [x] = this.canvas.place(event);
      if (event.button !== 0 || x < this.left) return;
      element.setPointerCapture(event.pointerId);
      this.drag = { from: x, to: x };
    });
    element.addEventListener("pointermove", (event) => {
      const [x, y] = this.canvas.place(event);
      if (this.drag !== null) {
        this.drag.to = x;
        this.draw();
      }
      const row = this.rowAt(y);
      element.style.cursor = x < this.left || (row !== undefined && this.callAt(row, x, y) !== undefined) ? "pointer" : "crosshair";
      if (row === undefined) this.tip.hide();
      else this.tip.show(this.facts(row, x, y), event);
    });
    element.addEventListener("pointerup", (event) => {
      const { drag } = this;
      this.drag = null;
      const [x, y] = this.canvas.place(event);
      if (drag !== null && Math.abs(drag.to - drag.from) > 3) {
        this.show(Math.min(this.timeAt(drag.from), this.timeAt(drag.to)), Math.max(this.timeAt(drag.from), this.timeAt(drag.to)));
      } else {
        this.click(x, y);
      }
    });
    element.addEventListener("dblclick", () => this.zoom(4, 0.5));
    element.addEventListener("pointerleave", () => this.tip.hide());
    element.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const [x] = this.canvas.place(event);
      this.zoom(event.deltaY > 0 ? 1.5 : 1 / 1.5, Math.max(0, (x - this.left) / (this.canvas.width - this.left)));
    }, { passive: false });
    element.addEventListener("keydown", (event) => this.key(event));
    element.addEventListener("blur", () => { this.cursor = -1; this.status.textContent = ""; this.draw(); });
  }

  private click(x: number, y: number): void {
    const row = this.rowAt(y);
    if (row === undefined) return;
    if (x < this.left) {
      if (row.kind === "thread") this.toggle(row.id);
      else if (row.kind === "process") this.state.change({ threads: new Set(this.threadsOf(row.id)) });
      return;
    }
    const call = this.callAt(row, x, y);
    if (call !== undefined) {
      const { begin, length } = this.calls!.chart;
      const margin = Math.max(SHORTEST / 2, length[call]! * 0.05);
      this.show(begin[call]! - margin, begin[call]! + length[call]! + margin);
    } else if (row.kind === "cpu") {
      const thread = this.at(row, x)?.what;
      if (thread !== undefined && this.data.threads[thread]![0] !== OTHER_THREADS) this.toggle(thread);
    } else if (row.kind === "thread") {
      this.showStretch(row, x);
    }
  }

  /** Shows what is known of a stretch: its reason, its stack and its waker, and what leads on. */
  private showStretch(row: Row, x: number): void {
    const part = this.at(row, x);
    if (part === null) {
      this.stretch.replaceChildren(make("p", { class: "note" }, `${this.name(row)}: nothing was recorded at ${exactTime(Math.round(this.timeAt(x)))}`));
      return;
    }
    const state = STATES[part.what] ?? "unknown";
    const isOff = state !== "running" && state !== "runnable";
    const wait = isOff && !part.isMerged ? waitOf(this.data, row.id, state, part.begin, part.end) : null;
    const wakes = this.data.tracks?.wakes ?? null;
    const ended = wakes === null || part.isMerged ? -1 : upper(wakes.time, part.end) - 1;
    const isWoken = wakes !== null && ended >= 0 && wakes.woken[ended] === row.id && wakes.time[ended]! >= part.begin;
    const before = wakes === null || part.isMerged || state === "preempted" ? null : wakeOf(wakes, row.track!, row.id, part.begin);
    const lines: [string, string][] = [
      ["thread", this.name(row)],
      ["state", part.isMerged ? `${state}, in short stretches` : state],
      ["time", `${exactTime(part.begin)} to ${exactTime(part.end)}`], ["duration", duration(part.isMerged ? part.time : part.end - part.begin)],
      ["reason", wait?.reason ?? (state === "preempted" ? "another thread got its CPU" : state === "runnable" ? "waits for a CPU" : "")],
      ["ended by", isWoken ? `${this.threadName(wakes!.waker[ended]!)} at ${exactTime(wakes!.time[ended]!)}` : wait?.waker ?? ""],
      ["woken by", !isOff && before !== null ? `${this.threadName(wakes!.waker[before]!)} at ${exactTime(wakes!.time[before]!)}` : ""],
      ["stack", wait === null ? "" : `${wait.frames.join("\n")}${wait.others > 0 ? `\n(or one of ${wait.others} more in the same slot)` : ""}`],
    ];
    const select = (profile: number) => () => {
      this.state.change({ threads: new Set([row.id]), profile, zoom: 0, ...(this.state.selection.view === "sandwich" ? { view: "icicle" as const } : {}) });
      this.state.showSpan(part.begin, part.end);
    };
    const off = this.data.profiles.findIndex((one) => one === offCpu(this.data, row.id));
    const on = this.data.profiles.findIndex((one) => one.cells !== null && !one.is_off_cpu && (one.trace ?? 0) === traceOf(this.data, row.id));
    const links = [
      ...(isOff && off >= 0 ? [button("select this wait", "Select its time and thread, and show the stacks off the CPU", select(off))] : []),
      ...(!isOff && on >= 0 ? [button("select this time", "Select its time and thread, and show the stacks", select(on))] : []),
      button("close", "Close", () => this.stretch.replaceChildren()),
    ];
    this.stretch.replaceChildren(make("table", { "aria-label": "Selected stretch" }, make("tbody", {}, ...lines.filter(([, value]) => value !== "")
      .map(([name, value]) => make("tr", {}, make("th", { scope: "row", class: "name" }, name), make("td", { class: "name" }, value))))),
      make("p", { class: "tools" }, ...links));
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const [from, to] = this.range;
    const move = (share: number) => this.show(from + (to - from) * share, to + (to - from) * share);
    const go = (step: number) => {
      this.cursor = Math.max(0, Math.min(this.rows.length - 1, this.cursor + step));
      const row = this.rows[this.cursor];
      if (row !== undefined) this.status.textContent = this.sums(row).join(" · ");
      this.draw();
    };
    switch (event.key) {
      case "ArrowLeft": move(-0.25); break;
      case "ArrowRight": move(0.25); break;
      case "ArrowUp": go(-1); break;
      case "ArrowDown": go(1); break;
      case "+": case "=": this.zoom(0.5, 0.5); break;
      case "-": this.zoom(2, 0.5); break;
      case "Enter": case " ": {
        const row = this.rows[this.cursor];
        if (row?.kind === "thread") this.toggle(row.id);
        if (row?.kind === "process") this.state.change({ threads: new Set(this.threadsOf(row.id)) });
        break;
      }
      default: return;
    }
    event.preventDefault();
  }

  /** The part of a track at a place. */
  private at(row: Row, x: number): { begin: number; end: number; what: number; time: number; isMerged: boolean } | null {
    if (row.track === null) return null;
    const [from, to] = this.range;
    const pixel = (to - from) / Math.max(1, this.canvas.width - this.left);
    const time = this.timeAt(x);
    let found: { begin: number; end: number; what: number; time: number; isMerged: boolean } | null = null;
    parts(row.track, time, time + pixel, (begin, end, what, sum, isMerged) => {
      if (found === null || sum > found.time) found = { begin, end, what, time: sum, isMerged };
    });
    return found;
  }

  private whatName(row: Row, what: number): string {
    return row.kind === "cpu" ? this.threadName(what) : STATES[what] ?? "unknown";
  }

  private facts(row: Row, x: number, y: number): string[] {
    if (x < this.left) return this.sums(row);
    const call = this.callAt(row, x, y);
    if (call !== undefined) {
      const { begin, length, function: functions, names } = this.calls!.chart;
      const name = names[functions[call]!]!;
      return [name.length > 600 ? cut(name, 600) : name, duration(length[call]!), `at ${exactTime(begin[call]!)}`, this.name(row)];
    }
    const part = this.at(row, x);
    const time = exactTime(Math.round(this.timeAt(x)));
    if (row.kind === "process") return [this.name(row), "a click on its name selects its threads"];
    if (part === null) return [this.name(row), row.kind === "cpu" && !this.isInParts(row) ? `idle, or not recorded, at ${time}` : `not recorded at ${time}`];
    const what = this.whatName(row, part.what);
    const wakes = this.data.tracks?.wakes ?? null;
    const woken = row.kind === "thread" && STATES[part.what] === "running" && !part.isMerged ? wakeOf(wakes, row.track!, row.id, part.begin) : null;
    const waker = woken === null ? [] : [`woken by ${this.threadName(wakes!.waker[woken]!)} at ${exactTime(wakes!.time[woken]!)}`];
    const source = row.kind === "cpu" ? this.sourceOf(row) : null;
    if (source !== null) return [`${this.name(row)}: ${what}`, `most samples of ${source} from ${exactTime(part.begin)} to ${exactTime(part.end)}`];
    return part.isMerged
      ? [`${this.name(row)}: ${what}`, `${duration(part.time)} in short stretches, from ${exactTime(part.begin)} to ${exactTime(part.end)}`]
      : [`${this.name(row)}: ${what}`, duration(part.end - part.begin), `from ${exactTime(part.begin)} to ${exactTime(part.end)}`, ...waker];
  }

  /** The sums of a row in view. */
  private sums(row: Row): string[] {
    const [from, to] = this.range;
    if (row.track === null || (row.kind === "cpu" && this.sourceOf(row) !== null)) return [this.name(row)];
    if (row.kind === "thread") {
      const all = times(row.track, from, to);
      return [this.name(row), ...GROUPS.flatMap((group, index) => (all[index]! > 0 ? [`${group.name} ${duration(Math.round(all[index]!))}`] : []))];
    }
    let busy = 0;
    spent(row.track, from, to, (_what, time) => { busy += time; });
    return [this.name(row), `busy ${duration(Math.round(busy))}, ${((busy / (to - from)) * 100).toFixed(2)}%`];
  }

  update(): void {
    const { selection } = this.state;
    const [from, to] = this.range;
    const isShown = (thread: number) => selection.threads.size === 0 || selection.threads.has(thread);
    const { chart } = this.calls ?? {};
    const inView = (call: number) => chart!.begin[call]! < to && chart!.begin[call]! + chart!.length[call]! >= from;
    let count = 0;
    const cpuRows = this.tracks.filter((track) => track.kind === "cpu");
    const threadTracks = this.tracks.filter((track) => track.kind === "thread" && isShown(track.id));
    const busy = new Map(threadTracks.map((track) => [track, times(track, from, to).slice(0, SLEEPING).reduce((sum, time) => sum + time, 0)]));
    // A thread of which nothing is known in this time has no row, unless it is selected.
    const isKnown = (track: Track) => {
      let known = selection.threads.has(track.id);
      parts(track, from, to, () => { known = true; });
      return known;
    };
    const ranked = threadTracks.filter(isKnown).sort((a, b) => busy.get(b)! - busy.get(a)!);
    const rows: Row[] = [...cpuRows, ...this.byProcess(ranked.slice(0, THREADS))]
      .map((track): Row => ({ kind: track.kind, id: track.id, track, y: 0, calls: [], levels: 0 }));
    const omittedThreads = ranked.length - Math.min(ranked.length, THREADS);
    const hasTrack = new Set(this.tracks.filter((track) => track.kind === "thread").map((track) => track.id));
    const callsInView = new Map([...this.callsOf].filter(([thread]) => isShown(thread)).map(([thread, calls]) => [thread, calls.filter(inView)]));
    for (const calls of callsInView.values()) count += calls.length;
    const others = [...callsInView].filter(([thread, calls]) => calls.length > 0 && !hasTrack.has(thread)).sort((a, b) => b[1].length - a[1].length);
    for (const [thread] of others.slice(0, 30)) rows.push({ kind: "thread", id: thread, track: null, y: 0, calls: [], levels: 0 });
    for (const row of rows) if (row.kind === "thread") row.calls = callsInView.get(row.id) ?? [];
    const areDrawn = count <= MOST_CALLS;
    const shown = rows.filter((row) => row.track !== null || (areDrawn && row.calls.length > 0) || selection.threads.has(row.id));
    rows.splice(0, rows.length, ...this.withProcesses(shown));
    const threads = new Set(rows.filter((row) => row.kind === "thread").map((row) => row.id));
    const wakes = wakesIn(this.data.tracks?.wakes ?? null, threads, from, to);
    this.wakes = wakes.length <= MOST_WAKES ? wakes : [];
    let deepest = 0;
    for (const row of rows) {
      if (!areDrawn) row.calls = [];
      for (const call of row.calls) row.levels = Math.max(row.levels, chart!.depth[call]! + 1);
      deepest = Math.max(deepest, row.levels);
    }
    const plain = rows.length * (ROW + GAP) + RULER;
    const all = (levels: number) => rows.reduce((sum, row) => sum + Math.min(row.levels, levels) * CALL, plain);
    let levels = LEVELS;
    while (levels > 1 && all(levels) > HIGHEST) levels--;
    let y = RULER;
    for (const row of rows) {
      row.levels = Math.min(row.levels, levels);
      row.y = y;
      y += ROW + row.levels * CALL + GAP;
    }
    this.rows = rows;
    const cpus = rows.filter((row) => row.kind === "cpu").length;
    const source = this.data.tracks?.source ?? null;
    const notes = [
      readableRange(from, to),
      ...(cpus > 0 ? [counted(cpus, "CPU")] : []), counted(rows.filter((row) => row.kind === "thread").length, "thread"),
      ...(omittedThreads > 0 ? [`those of ${THREADS + omittedThreads} that are busy longest in this time`] : []),
      ...(source !== null ? [`CPUs from samples of ${source}: a row is full where they are most`] : []),
      ...(this.data.tracks?.notes ?? []), ...errors(this.data),
      ...(this.calls === null ? [] : [areDrawn ? counted(count, "call") : `${grouped(count)} calls: up to ${grouped(MOST_CALLS)} are drawn, zoom in`]),
      ...(wakes.length === 0 ? [] : wakes.length <= MOST_WAKES ? [`${counted(wakes.length, "wake-up")}: arrows from the waker`]
        : [`${grouped(wakes.length)} wake-ups: up to ${MOST_WAKES} are drawn, zoom in`]),
      ...(areDrawn && others.length > 30 ? [`calls of ${counted(others.length - 30, "more thread")}: select them`] : []),
      ...(deepest > levels ? [`levels below ${levels} of ${deepest} are not drawn`] : []),
      ...(this.data.losses?.some((slot) => slot * this.state.slot < to && (slot + 1) * this.state.slot > from) ? ["red: events were lost"] : []),
    ];
    this.panel.note.replaceChildren(...notes.map((line) => make("span", {}, line)));
    this.drawLegend();
    this.command.update();
    this.showTable(from, to);
    this.draw();
  }

  /** Threads of a process follow each other, the busiest process first. */
  private byProcess(ranked: Track[]): Track[] {
    const order = new Map<number, Track[]>();
    ranked.forEach((track, place) => {
      const pid = this.processOf(track.id) ?? -1 - place;
      const known = order.get(pid);
      if (known === undefined) order.set(pid, [track]);
      else known.push(track);
    });
    return [...order.values()].flat();
  }

  /** The rows with one for each process that has several threads among them. */
  private withProcesses(rows: Row[]): Row[] {
    const pidOf = (row: Row | undefined) => (row?.kind === "thread" ? this.processOf(row.id) : null);
    return rows.flatMap((row, index): Row[] => {
      const pid = pidOf(row);
      const isFirst = pid !== null && pid !== pidOf(rows[index - 1]) && pid === pidOf(rows[index + 1]);
      return isFirst ? [{ kind: "process", id: pid, track: null, y: 0, calls: [], levels: 0 }, row] : [row];
    });
  }

  private showTable(from: number, to: number): void {
    const lines = this.rows.filter((row) => row.kind === "thread" && row.track !== null)
      .map((row): StateLine => ({ thread: row.id, times: times(row.track!, from, to) }));
    this.details.hidden = lines.length === 0;
    if (lines.length > 0) this.table.show(lines, [
      ...GROUPS.map((group, index) => ({
        title: group.name, value: (line: StateLine) => line.times[index]!, text: (line: StateLine) => duration(Math.round(line.times[index]!)),
      })),
      { title: "thread", value: (line) => this.threadName(line.thread), isName: true },
    ]);
  }

  private drawLegend(): void {
    const hasStates = this.tracks.some((track) => track.kind === "thread");
    this.legend.replaceChildren(...(hasStates
      ? GROUPS.map((group) => legendEntry(color(`state-${group.name}`), group.states.length === 1 && group.states[0] !== group.name ? `${group.name} (${group.states[0]})`
        : group.name === "runnable" ? "runnable or preempted" : group.name === "other" ? "stopped, parked, idle" : group.name)) : []),
      ...(hasStates ? [make("span", {}, make("i", { class: "hatched" }), "not recorded")] : []), ...this.cpuLegend());
  }

  /** The threads that ran longest in view, by their color on CPUs. */
  private cpuLegend(): HTMLElement[] {
    const [from, to] = this.range;
    const sums = new Map<number, number>();
    for (const track of this.tracks) {
      if (track.kind === "cpu") spent(track, from, to, (what, time) => sums.set(what, (sums.get(what) ?? 0) + time));
    }
    const all = [...sums.values()].reduce((sum, time) => sum + time, 0);
    return [...sums].sort((a, b) => b[1] - a[1]).slice(0, COLORS).map(([thread, time]) => {
      const [fill, alpha] = this.shade(this.ranks.get(thread) ?? thread);
      const entry = legendEntry(fill, `${cutBeforeNumber(this.threadName(thread), 28)} ${((time / Math.max(1, all)) * 100).toFixed(1)}%`);
      (entry.firstChild as HTMLElement).style.opacity = String(alpha);
      return entry;
    });
  }

  /** Color of a thread on a CPU, and of a function: the ones of modules, in shades. */
  private shade(index: number): [string, number] {
    const palette = this.data.colors.modules;
    return [palette[index % 8]![isDark() ? 1 : 0]!, [1, 0.78, 0.6][Math.floor(index / 8) % 3]!];
  }

  private draw(): void {
    const last = this.rows[this.rows.length - 1];
    const height = last === undefined ? 60 : last.y + ROW + last.levels * CALL + GAP;
    if (!this.canvas.fit(height)) return;
    const { context, width } = this.canvas;
    const [from, to] = this.range;
    const { left } = this;
    const wide = width - left;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "top";
    axis(context, left, wide, from, to, RULER - 5, true);
    const losses = this.data.losses ?? [];
    const groups = GROUPS.map((group) => color(`state-${group.name}`));
    const [ink, band, quiet, focus] = [color("ink"), color("band"), color("quiet"), color("focus")];
    const processes = new Set(this.rows.filter((row) => row.kind === "process").map((row) => row.id));
    const isProcess = (row: Row) => processes.has(this.processOf(row.id) ?? NaN);
    this.rows.forEach((row, index) => {
      if (row.kind !== "process") {
        context.fillStyle = (row.kind === "thread" && row.track !== null) || this.isInParts(row) ? this.hatching() : band;
        context.fillRect(left, row.y, wide, ROW);
      }
      if (row.track !== null) this.drawTrack(row, row.track, left, wide, groups);
      this.drawCalls(row, left, wide);
      const isChosen = row.kind === "thread" && this.state.selection.threads.has(row.id);
      context.font = isChosen ? "600 11px system-ui, sans-serif" : "11px system-ui, sans-serif";
      context.textBaseline = "middle";
      context.textAlign = "left";
      context.fillStyle = row.kind === "thread" ? ink : quiet;
      const letters = Math.floor((left - 8) / 5.8);
      const isInside = row.kind === "thread" && isProcess(row);
      context.fillText(cutBeforeNumber(this.name(row), isInside ? letters - 2 : letters), isInside ? 12 : 2, row.y + ROW / 2 + 1, left - 8);
      if (index === this.cursor) {
        context.strokeStyle = focus;
        context.lineWidth = 1.5;
        context.strokeRect(0.75, row.y - 0.5, width - 1.5, ROW + row.levels * CALL + 1);
      }
    });
    drawWakes(context, this.data.tracks?.wakes ?? null, this.wakes, (thread) => this.rows.find((row) => row.kind === "thread" && row.id === thread)?.y, ROW,
      (time) => left + ((time - from) / (to - from)) * wide);
    context.fillStyle = color("loss");
    const { slot } = this.state;
    for (const at of losses) {
      const [begin, end] = [at * slot, (at + 1) * slot];
      if (end <= from || begin >= to) continue;
      const x = left + Math.max(0, (begin - from) / (to - from)) * wide;
      context.fillRect(x, RULER - 4, Math.max(2, Math.min(wide, ((end - from) / (to - from)) * wide) - (x - left)), 3);
    }
    if (this.drag !== null) {
      context.fillStyle = color("veil");
      const [a, b] = [Math.max(left, Math.min(this.drag.from, this.drag.to)), Math.max(this.drag.from, this.drag.to)];
      context.fillRect(a, 0, b - a, height);
    }
  }

  /** Whether of a CPU only some threads were recorded. */
  private isInParts(row: Row): boolean {
    return row.kind === "cpu" && this.data.traces[row.track?.trace ?? 0]?.is_of_threads === true;
  }

  /** The pattern of what was not recorded. */
  private hatching(): CanvasPattern | string {
    const line = color("line");
    if (this.hatch !== null && this.hatchColor === line) return this.hatch;
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const context = tile.getContext("2d")!;
    context.strokeStyle = line;
    context.lineWidth = 1;
    context.beginPath();
    for (const shift of [-6, 0, 6]) {
      context.moveTo(shift, 6);
      context.lineTo(shift + 6, 0);
    }
    context.stroke();
    this.hatchColor = line;
    return (this.hatch = this.canvas.context.createPattern(tile, "repeat")) ?? color("band");
  }

  /** Stretches narrower than a pixel share it by their times. */
  private drawTrack(row: Row, track: Track, left: number, wide: number, groups: string[]): void {
    const { context } = this.canvas;
    const [from, to] = this.range;
    const scale = wide / (to - from);
    const isCpu = row.kind === "cpu";
    const [ground, bandColor] = [color("ground"), color("band")];
    const chosen = this.state.selection.threads;
    const paint = (what: number): [string, number] => {
      if (!isCpu) return [groups[GROUP_OF[what] ?? 4]!, 1];
      const [fill, alpha] = this.shade(this.ranks.get(what) ?? what);
      return [fill, chosen.size === 0 || chosen.has(what) ? alpha : 0.16];
    };
    // What shares a pixel, or a cell of merged stretches.
    let [place, end] = [-1, -1];
    const whats: number[] = [], sums: number[] = [];
    const flush = () => {
      if (whats.length === 0) return;
      const [x, span] = [left + place, Math.max(1, end - place)];
      const all = (span / scale);
      const order = whats.map((_, index) => index)
        .sort((a, b) => (isCpu ? sums[b]! - sums[a]! : (GROUP_OF[whats[a]!] ?? 4) - (GROUP_OF[whats[b]!] ?? 4)));
      let top = row.y + ROW;
      if (!isCpu) {
        context.globalAlpha = 1;
        context.fillStyle = ground;
        context.fillRect(x, row.y, span, ROW);
        context.fillStyle = color("band");
        context.fillRect(x, row.y, span, ROW);
      }
      for (const index of order) {
        const height = Math.min(top - row.y, Math.max(sums[index]! > 0 ? 0.5 : 0, (sums[index]! / all) * ROW));
        const [fill, alpha] = paint(whats[index]!);
        context.globalAlpha = alpha;
        context.fillStyle = fill;
        top -= height;
        context.fillRect(x, top, span, height);
      }
      whats.length = sums.length = 0;
    };
    const add = (what: number, time: number) => {
      const known = whats.indexOf(what);
      if (known < 0) {
        whats.push(what);
        sums.push(time);
      } else {
        sums[known]! += time;
      }
    };
    parts(track, from, to, (begin, stop, what, time, isMerged) => {
      const [first, last] = [Math.max(0, (begin - from) * scale), Math.min(wide, (stop - from) * scale)];
      if (last - first >= 1 && !isMerged) {
        const [fill, alpha] = paint(what);
        context.globalAlpha = alpha;
        context.fillStyle = fill;
        const isSleep = !isCpu && GROUP_OF[what]! >= SLEEPING;
        if (isSleep) {
          for (const under of [ground, bandColor]) {
            context.fillStyle = under;
            context.fillRect(left + first, row.y, Math.max(1, last - first), ROW);
          }
          context.fillStyle = fill;
        }
        context.fillRect(left + first, row.y + (isSleep ? ROW - 4 : 0), Math.max(1, last - first - (last - first > 4 ? 0.4 : 0)), isSleep ? 4 : ROW);
        if (isCpu && last - first > 46) {
          context.globalAlpha = chosen.size === 0 || chosen.has(what) ? 1 : 0.4;
          context.fillStyle = color("box-ink");
          context.font = FONT;
          context.textBaseline = "middle";
          context.textAlign = "left";
          context.fillText(cut(this.threadName(what), Math.floor((last - first - 6) / 6.7)), left + first + 3, row.y + ROW / 2 + 1, last - first - 6);
        }
        return;
      }
      const at = isMerged && last - first >= 1 ? first : Math.floor(first);
      if (at !== place) {
        flush();
        place = at;
        end = isMerged && last - first >= 1 ? last : at + 1;
      }
      // A pixel is shared by the parts that begin in it.
      const share = isMerged && stop - begin > 0 ? (last - first) / scale / (stop - begin) : 1;
      add(what, Math.min(time, time * Math.min(1, share)));
    });
    flush();
    context.globalAlpha = 1;
  }

  private drawCalls(row: Row, left: number, wide: number): void {
    if (row.calls.length === 0) return;
    const { context } = this.canvas;
    const { begin, length, depth, function: functions, names } = this.calls!.chart;
    const [from, to] = this.range;
    const scale = wide / (to - from);
    const expression = this.state.expression();
    const [ink, hit] = [color("box-ink"), color("hit")];
    const isHit = expression === null ? null : new Map<number, boolean>();
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.font = FONT;
    const letter = context.measureText("m").width;
    for (const call of row.calls) {
      const level = depth[call]!;
      if (level >= row.levels) continue;
      const x = Math.max(0, (begin[call]! - from) * scale);
      const end = Math.min(wide, (begin[call]! + length[call]! - from) * scale);
      const name = functions[call]!;
      let matches = false;
      if (isHit !== null) {
        matches = isHit.get(name) ?? expression!.test(names[name]!);
        isHit.set(name, matches);
      }
      const [fill, alpha] = this.shade(name);
      const y = row.y + ROW + 1 + level * CALL;
      context.globalAlpha = isHit !== null && !matches ? alpha * 0.35 : alpha;
      context.fillStyle = matches ? hit : fill;
      context.fillRect(left + x, y, Math.max(0.7, end - x - (end - x > 3 ? 0.6 : 0)), CALL - 1);
      const letters = Math.floor((end - x - 6) / letter);
      if (letters < 3) continue;
      context.globalAlpha = 1;
      context.fillStyle = ink;
      context.fillText(shortened(names[name]!, letters), left + x + 3, y + CALL / 2, end - x - 6);
    }
    context.globalAlpha = 1;
  }
}
