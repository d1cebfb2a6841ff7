// Panels of rows: threads, functions, durations, slowest calls.

import { type Calls, type Data, type DurationRow, type SlowCall, traceOf } from "./data.ts";
import { Canvas, Tip, color, commandLine, make, panel } from "./dom.ts";
import { amount, counted, cut, duration, grouped, harmless, percent } from "./format.ts";
import { type FunctionLine, type Stacks, wholeTrace } from "./stacks.ts";
import { timedProfile } from "./rates.ts";
import { exactTime, type State } from "./state.ts";

/** Rows that are shown at first; the rest follows on demand. */
const ROWS = 50;
const LONGEST = 160;

export interface Column<T> {
  title: string;
  /** What the rows are sorted by; a string is sorted ascending. */
  value: (row: T) => number | string | null;
  text?: (row: T) => string;
  cell?: (row: T) => Node;
  isName?: boolean;
}

/** A sortable table; a row can be chosen by mouse and keyboard. */
export class Table<T> {
  readonly element = make("div", { class: "table" });
  private isReversed = false;
  private limit = ROWS;
  private rows: T[] = [];
  /** The row that the tab key reaches; the arrows go on from it. */
  private current = 0;

  constructor(
    private columns: Column<T>[], private sorted: number, private readonly onChoose: ((row: T) => void) | null,
    private readonly options: { isChosen?: (row: T) => boolean; titleOf?: (row: T) => string; label?: string } = {},
  ) {}

  show(rows: T[], columns = this.columns): void {
    this.columns = columns;
    this.rows = rows;
    this.draw();
  }

  private draw(): void {
    const column = this.columns[this.sorted] ?? this.columns[0]!;
    const rows = [...this.rows].sort((a, b) => {
      const [first, second] = [column.value(a), column.value(b)];
      const order = typeof first === "string" || typeof second === "string"
        ? String(first ?? "").localeCompare(String(second ?? "")) : (second ?? -Infinity) - (first ?? -Infinity);
      return this.isReversed ? -order : order;
    });
    const head = this.columns.map((one, index) => {
      const state = index === this.sorted ? (typeof one.value(rows[0] ?? ({} as T)) === "string" !== this.isReversed ? "ascending" : "descending") : "none";
      const sort = make("button", { type: "button" }, one.title);
      sort.addEventListener("click", () => {
        this.isReversed = index === this.sorted && !this.isReversed;
        this.sorted = index;
        this.draw();
      });
      return make("th", { scope: "col", "aria-sort": state, ...(one.isName ? { class: "name" } : {}) }, sort);
    });
    const hasFocus = this.element.contains(document.activeElement) && document.activeElement?.tagName === "TR";
    this.current = Math.max(0, Math.min(this.current, Math.min(rows.length, this.limit) - 1));
    const lines: HTMLTableRowElement[] = [];
    const body = rows.slice(0, this.limit).map((row, place) => {
      const cells = this.columns.map((one) => {
        const cell = make("td", one.isName ? { class: "name" } : {});
        const text = one.text?.(row) ?? String(one.value(row) ?? "");
        if (one.cell !== undefined) cell.append(one.cell(row));
        else cell.append(cut(text, LONGEST));
        // The exact value, for whoever reads the table with a script.
        cell.dataset["value"] = String(one.value(row) ?? "");
        return cell;
      });
      const line = make("tr", {}, ...cells);
      if (this.options.titleOf !== undefined) line.title = cut(this.options.titleOf(row), 2000);
      if (this.onChoose !== null) {
        lines.push(line);
        line.tabIndex = place === this.current ? 0 : -1;
        line.addEventListener("focus", () => {
          if (lines[this.current] !== undefined) lines[this.current]!.tabIndex = -1;
          this.current = place;
          line.tabIndex = 0;
        });
        line.setAttribute("aria-selected", String(this.options.isChosen?.(row) ?? false));
        line.addEventListener("click", () => this.onChoose!(row));
        line.addEventListener("keydown", (event) => {
          if (event.key === "Enter" || event.key === " ") {
            event.preventDefault();
            this.onChoose!(row);
          } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
            const next = event.key === "ArrowDown" ? line.nextElementSibling : line.previousElementSibling;
            if (next instanceof HTMLElement) {
              event.preventDefault();
              next.focus();
            }
          }
        });
      }
      return line;
    });
    const { label } = this.options;
    const table = make("table", label === undefined ? {} : { "aria-label": label }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body));
    const { scrollTop } = this.element;
    this.element.replaceChildren(table);
    this.element.scrollTop = scrollTop;
    if (hasFocus) lines[this.current]?.focus({ preventScroll: true });
    const rest = rows.length - this.limit;
    if (rest > 0) {
      const more = make("button", { type: "button", class: "more" }, `${grouped(Math.min(rest, 500))} more of ${grouped(rest)}`);
      more.addEventListener("click", () => {
        this.limit += 500;
        this.draw();
      });
      this.element.append(more);
    }
    if (rows.length === 0) this.element.replaceChildren(make("p", { class: "note" }, "no rows in this selection"));
  }
}

const baseName = (path: string | null) => path?.split("/").pop() ?? "";

const profileOf = (data: Data, state: State) => data.profiles[state.selection.profile];

interface ThreadLine {
  index: number;
  weight: number;
}

export class Threads {
  private readonly panel = panel("threads", "Threads");
  readonly element = this.panel.element;
  private readonly table: Table<ThreadLine>;
  private readonly command = commandLine(() => this.state.command(this.words(), { more: profileOf(this.data, this.state)?.cells == null || profileOf(this.data, this.state)?.is_off_cpu === true ? [] : ["--by", "thread"], threads: false, trace: timedProfile(this.data, this.state)?.trace }));

  constructor(private readonly data: Data, private readonly state: State) {
    this.table = new Table<ThreadLine>([], 0, (line) => this.toggle(line.index), {
      isChosen: (line) => state.selection.threads.has(line.index),
      titleOf: (line) => this.name(line.index), label: "Threads",
    });
    this.panel.body.append(this.table.element, this.command.element);
  }

  private words(): string[] {
    const profile = timedProfile(this.data, this.state);
    // Without its callees, no time of a thread counts twice.
    if (profile === null) return ["sql", "SELECT comm, tid, sum(self_time) AS busy FROM calls GROUP BY comm, tid ORDER BY busy DESC"];
    return profile.top ?? this.data.profiles.find((one) => one.top !== undefined)?.top ?? ["durations", "--by", "comm"];
  }

  private name(index: number): string {
    const [tid, pid, comm] = this.data.threads[index]!;
    const of = pid === null || pid === tid ? "" : ` of process ${pid}`;
    return `${tid < 0 ? "without a thread" : `${comm ?? "[unknown]"} (${tid})`}${of}`;
  }

  private toggle(index: number): void {
    const threads = new Set(this.state.selection.threads);
    if (!threads.delete(index)) threads.add(index);
    this.state.change({ threads });
  }

  update(): void {
    const profile = timedProfile(this.data, this.state) ?? undefined;
    // Calls within calls count once.
    const cells = profile?.cells ?? this.data.calls?.busy;
    if (cells === undefined || cells === null) return;
    const unit = profile?.unit ?? "ns";
    const { time } = this.state.selection;
    const slots = Math.floor((this.data.length ?? 1) / (this.data.slot ?? 1)) + 1;
    const hasSpans = profile === undefined || profile.is_off_cpu;
    const steps = profile === undefined ? this.data.calls?.steps ?? 1 : 1;
    const weights = new Float64Array(this.data.threads.length);
    const strips = new Map<number, Float64Array>();
    const bins = 160;
    let all = 0;
    for (let index = 0; index < cells.slot.length; index++) {
      const [slot, thread] = [cells.slot[index]! * steps, cells.thread[index]!];
      let weight = cells.weight[index]!;
      const spans = (hasSpans ? Math.max(1, cells.bar[index]!) : 1) * steps;
      if (slot >= 0) {
        let strip = strips.get(thread);
        if (strip === undefined) strips.set(thread, (strip = new Float64Array(bins)));
        const [first, last] = [slot, slot + spans - 1].map((at) => Math.max(0, Math.min(bins - 1, Math.floor((at / slots) * bins)))) as [number, number];
        for (let bin = first; bin <= last; bin++) strip[bin]! += weight / (last - first + 1);
      }
      if (time !== null) weight *= Math.max(0, Math.min(time[1], slot + spans) - Math.max(time[0], slot)) / spans;
      weights[thread]! += weight;
      all += weight;
    }
    const lines: ThreadLine[] = [];
    weights.forEach((weight, index) => {
      if (weight > 0 || this.state.selection.threads.has(index)) lines.push({ index, weight });
    });
    const expected = lines.length;
    this.panel.note.replaceChildren(
      make("span", {}, `${counted(expected, "thread")} with ${profile?.name ?? "calls"} in this time${profile === undefined ? ", in which calls within calls count once" : ""}; choose rows to see these threads alone`));
    this.table.show(lines, [
      { title: "weight", value: (line) => line.weight, text: (line) => amount(Math.round(line.weight), unit) },
      { title: "share", value: (line) => line.weight, text: (line) => percent(line.weight, all) },
      { title: "all time", value: (line) => line.weight, cell: (line) => strip(strips.get(line.index)) },
      { title: "thread", value: (line) => this.name(line.index), text: (line) => cut(this.name(line.index), 60), isName: true },
    ]);
    this.command.update();
  }
}

const SVG = "http://www.w3.org/2000/svg";

/** A small picture: a path in its own box. */
function picture(width: number, height: number, ...paths: [string, string][]): SVGSVGElement {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", String(width));
  svg.setAttribute("height", String(height));
  svg.setAttribute("aria-hidden", "true");
  for (const [d, kind] of paths) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", d);
    path.setAttribute("class", kind);
    svg.append(path);
  }
  return svg;
}

function strip(values: Float64Array | undefined): Node {
  if (values === undefined) return document.createTextNode("");
  const most = Math.max(...values, 1e-9);
  let d = "";
  values.forEach((value, bin) => {
    if (value > 0) d += `M${bin} 14V${(14 - Math.max(1, (value / most) * 13)).toFixed(1)}h1V14z`;
  });
  return picture(values.length, 15, [d, "area"]);
}

/** The course of a few numbers, from left to right, in the size of other strips. */
export function bars(values: (number | null)[]): Node {
  if (values.length === 0) return document.createTextNode("");
  const bins = 160;
  const wide = new Float64Array(bins);
  for (let bin = 0; bin < bins; bin++) wide[bin] = Math.max(0, values[Math.floor((bin * values.length) / bins)] ?? 0);
  return strip(wide);
}

export class Functions {
  private readonly panel = panel("functions", "Functions");
  readonly element = this.panel.element;
  private readonly table: Table<FunctionLine>;
  private readonly command = commandLine(() => {
    const profile = this.profile;
    const { trace } = profile;
    return profile.top !== undefined ? this.state.command(profile.top, { trace })
      : profile.kind === "difference" ? this.state.command(["diff"]) : this.state.command(profile.kind === "calls" ? ["durations", "--sort", "self"] : ["top"], { time: false, trace });
  });

  constructor(private readonly data: Data, private readonly state: State, private readonly stacks: Stacks[]) {
    this.table = new Table<FunctionLine>([], 0, (line) => this.state.change({ view: "sandwich", focus: line.name }), {
      label: "Functions", isChosen: (line) => this.state.selection.view === "sandwich" && this.state.selection.focus === line.name,
      titleOf: (line) => `${line.name}${line.module === null ? "" : `\n${line.module}`}`,
    });
    this.panel.body.append(this.table.element, this.command.element);
  }

  private get profile() {
    return this.data.profiles[this.state.selection.profile]!;
  }

  /** Of the calls of the profile's trace, by function. */
  private durations(): Map<string, DurationRow> {
    const { trace } = this.profile;
    const rows = (this.data.calls?.rows ?? []).filter((row) => row.trace === undefined || trace === undefined || row.trace === trace);
    return new Map(rows.map((row) => [row.function, row]));
  }

  update(): void {
    const stacks = this.stacks[this.state.selection.profile]!;
    const { boxes } = stacks.selected(this.state);
    const { unit } = this.profile;
    const [all, before] = [boxes.total[0]!, boxes.before?.[0] ?? 0];
    const expression = this.state.expression();
    const lines = stacks.functions(boxes).filter((line) => expression === null || expression.test(line.name));
    // Outermost frames of which nothing is known are left out of incomplete stacks.
    const durations = this.profile.kind === "calls" ? this.durations() : null;
    const isUnknown = (line: FunctionLine) => line.own === 0 && durations?.get(line.name)?.self === null;
    const isLower = (line: FunctionLine) => {
      const known = durations?.get(line.name);
      return durations === null ? line.name === "[unknown]" && line.module === null : known !== undefined && known.unfinished > 0;
    };
    const name: Column<FunctionLine> = { title: "function", value: (line) => line.name, isName: true };
    const module: Column<FunctionLine> = { title: "module", value: (line) => baseName(line.module), isName: true };
    const change = (line: FunctionLine) => line.own / Math.max(1, all) - line.ownBefore / Math.max(1, before);
    const changeTotal = (line: FunctionLine) => line.total / Math.max(1, all) - line.totalBefore / Math.max(1, before);
    const points = (share: number) => `${share > 0 ? "+" : ""}${(share * 100).toFixed(2)}`;
    const columns: Column<FunctionLine>[] = boxes.before !== null ? [
      { title: "self change", value: (line) => Math.abs(change(line)), text: (line) => points(change(line)) },
      { title: "self before", value: (line) => line.ownBefore / Math.max(1, before), text: (line) => percent(line.ownBefore, before) },
      { title: "self after", value: (line) => line.own / Math.max(1, all), text: (line) => percent(line.own, all) },
      { title: "total change", value: (line) => Math.abs(changeTotal(line)), text: (line) => points(changeTotal(line)) },
      name, module,
    ] : [
      { title: "self", value: (line) => line.own, text: (line) => (isUnknown(line) ? "unknown" : amount(Math.round(line.own), unit)) },
      { title: "self %", value: (line) => line.own, text: (line) => (isUnknown(line) ? "" : percent(line.own, all)) },
      { title: "total", value: (line) => line.total, text: (line) => `${isLower(line) ? "≥ " : ""}${amount(Math.round(line.total), unit)}` },
      { title: "total %", value: (line) => line.total, text: (line) => percent(line.total, all) },
      name, module,
    ];
    const noun = expression === null ? "function" : "matching function";
    const notes = [
      `${counted(lines.length, noun)}; ${this.profile.name}; a row shows callers and callees${boxes.before === null ? "" : "; changes in percentage points"}`,
      ...wholeTrace(this.profile, this.state.selection)];
    this.panel.note.replaceChildren(...notes.map((line) => make("span", {}, line)));
    this.table.show(lines, columns);
    this.command.update();
  }
}

/** The column with the names of the traces, if there are several. */
function traceColumn<Line extends { trace?: number }>(data: Data): Column<Line>[] {
  const name = (line: Line) => data.traces[line.trace ?? 0]?.name ?? "";
  return data.axes === undefined || data.traces.length < 2 ? [] : [{ title: "trace", value: name, isName: true }];
}

interface DurationLine extends DurationRow {
  index: number;
  bars: Map<number, number>;
}

export class Durations {
  private readonly panel = panel("durations", "Durations");
  readonly element = this.panel.element;
  private readonly table: Table<DurationLine>;
  private readonly heat = new Canvas("Durations over time", 190);
  private readonly heatNote = make("p", { class: "note" });
  private readonly command = commandLine(() => this.state.command(this.calls.durations));
  private readonly heatCommand = commandLine(() => this.state.command(this.calls.heatmap, {
    time: false, more: ["--where", `function = '${(this.chosenName() ?? "").replaceAll("'", "''")}'`, "-o", "heat.svg"],
    trace: this.chosen === null ? undefined : this.calls.rows[this.chosen]?.trace,
  }));
  private chosen: number | null = null;

  constructor(private readonly calls: Calls, private readonly data: Data, private readonly state: State, tip: Tip) {
    this.table = new Table<DurationLine>([], 0, (line) => {
      this.chosen = this.chosen === line.index ? null : line.index;
      this.update();
    }, { label: "Durations of calls", isChosen: (line) => line.index === this.chosen, titleOf: (line) => line.function });
    this.panel.body.append(this.table.element, this.command.element, this.heatNote, this.heat.element, this.heatCommand.element);
    this.heat.element.addEventListener("mousemove", (event) => {
      const [x] = this.heat.place(event);
      const [slots, step] = [this.slots(), this.calls.steps * (this.data.slot ?? 1)];
      const at = Math.floor((x / this.heat.width) * slots);
      tip.show([`${duration(at * step)} to ${duration((at + 1) * step)}`], event);
    });
    this.heat.element.addEventListener("mouseleave", () => tip.hide());
  }

  private chosenName(): string | null {
    return this.chosen === null ? null : this.calls.rows[this.chosen]?.function ?? null;
  }

  private slots(): number {
    return Math.floor((this.data.length ?? 1) / ((this.data.slot ?? 1) * this.calls.steps)) + 1;
  }

  /** The slots of the cells that have a part of the selected time. */
  private time(): [number, number] | null {
    const { time } = this.state.selection;
    const { steps } = this.calls;
    return time === null ? null : [Math.floor(time[0] / steps), Math.ceil(time[1] / steps)];
  }

  /** Whether the calls of a bar have no known duration. */
  private isUnknown(bar: number): boolean {
    return bar >= 64 * this.calls.bars;
  }

  private lines(): { lines: DurationLine[]; isWhole: boolean } {
    const { cells, rows, bars } = this.calls;
    const { threads } = this.state.selection;
    const time = this.time();
    const sums = rows.map(() => ({ count: 0, known: 0, total: 0, bars: new Map<number, number>() }));
    for (let index = 0; index < cells.slot.length; index++) {
      const slot = cells.slot[index]!;
      if ((time !== null && (slot < time[0] || slot >= time[1])) || (threads.size > 0 && !threads.has(cells.thread[index]!))) continue;
      const sum = sums[cells.node[index]!]!;
      const [bar, count] = [cells.bar[index] ?? 0, cells.count[index]!];
      sum.count += count;
      if (this.isUnknown(bar)) continue;
      sum.known += count;
      sum.total += cells.weight[index]!;
      sum.bars.set(bar, (sum.bars.get(bar) ?? 0) + count);
    }
    const isWhole = time === null && threads.size === 0;
    const lines = rows.map((row, index): DurationLine => {
      const sum = sums[index]!;
      if (isWhole) return { ...row, index, bars: sum.bars };
      const at = (quantile: number): number | null => {
        let rest = Math.ceil(sum.known * quantile);
        for (const [bar, count] of [...sum.bars].sort((a, b) => a[0] - b[0])) {
          rest -= count;
          if (rest <= 0) return 2 ** ((bar + 0.5) / bars);
        }
        return null;
      };
      return {
        ...(row.trace === undefined ? {} : { trace: row.trace }), function: row.function, index, bars: sum.bars, count: sum.count, unfinished: sum.count - sum.known, total: sum.known > 0 ? sum.total : null, self: null, min: null, max: at(1),
        avg: null, p50: at(0.5), p95: at(0.95), p99: at(0.99),
      };
    });
    const expression = this.state.expression();
    return {
      lines: lines.filter((line) => line.count > 0 && (expression === null || expression.test(line.function))), isWhole,
    };
  }

  update(): void {
    const { lines, isWhole } = this.lines();
    const [low, high] = [Math.min(...lines.map((line) => Math.min(...line.bars.keys()))), Math.max(...lines.map((line) => Math.max(...line.bars.keys())))];
    const about = isWhole ? "" : "≈ ";
    const time = (value: number | null) => (value === null ? "" : duration(Math.round(value)));
    const columns: Column<DurationLine>[] = [
      { title: "total", value: (line) => line.total, text: (line) => time(line.total) },
      { title: "calls", value: (line) => line.count, text: (line) => grouped(line.count) },
      ...(["p50", "p95", "p99", "max"] as const).map((title): Column<DurationLine> => ({
        title, value: (line) => line[title], text: (line) => (line[title] === null ? "" : about + time(line[title])),
      })),
      { title: "distribution", value: (line) => line.p50, cell: (line) => violin(line.bars, low, high) },
      ...traceColumn<DurationLine>(this.data),
      { title: "function", value: (line) => line.function, isName: true },
    ];
    const rounded = this.state.selection.time !== null && this.calls.steps > 1
      ? [`time rounded to ${duration(this.calls.steps * (this.data.slot ?? 1))}`] : [];
    const scale = lines.length > 0 ? [`distribution: ${time(2 ** (low / this.calls.bars))} to ${time(2 ** ((high + 1) / this.calls.bars))}, logarithmic`] : [];
    const unknown = lines.reduce((sum, line) => sum + line.unfinished, 0);
    const unfinished = unknown > 0 ? [`${counted(unknown, "call")} of unknown duration`] : [];
    const notes = isWhole ? [this.calls.summary, ...scale] : [...unfinished, "percentiles of a selection are within 4.5% and 1 ns", ...rounded, ...scale];
    this.panel.note.replaceChildren(...notes.map((line) => make("span", {}, line)));
    this.table.show(lines, columns);
    this.command.update();
    this.drawHeat();
  }

  private drawHeat(): void {
    const name = this.chosenName();
    for (const element of [this.heat.element, this.heatNote, this.heatCommand.element]) element.hidden = name === null;
    this.heatNote.textContent = name === null ? "" : `${cut(name, 200)} over time`;
    if (name === null || !this.heat.fit(190)) return;
    const { cells, bars } = this.calls;
    const { threads } = this.state.selection;
    const counts = new Map<number, number>();
    let [low, high, most] = [Infinity, 0, 1];
    const columns = Math.min(this.slots(), Math.max(1, Math.floor(this.heat.width / 3)));
    for (let index = 0; index < cells.slot.length; index++) {
      const slot = cells.slot[index]!;
      if (cells.node[index] !== this.chosen || slot < 0 || this.isUnknown(cells.bar[index] ?? 0) || (threads.size > 0 && !threads.has(cells.thread[index]!))) continue;
      const bar = Math.floor((cells.bar[index] ?? 0) / 2);
      const key = Math.floor((slot / this.slots()) * columns) * 1024 + bar;
      const count = (counts.get(key) ?? 0) + cells.count[index]!;
      counts.set(key, count);
      [low, high, most] = [Math.min(low, bar), Math.max(high, bar), Math.max(most, count)];
    }
    const { context, width } = this.heat;
    const plot = 170;
    context.fillStyle = color("band");
    context.fillRect(0, 0, width, plot);
    const [cellWidth, cellHeight] = [width / columns, plot / Math.max(1, high - low + 1)];
    context.fillStyle = color("accent");
    for (const [key, count] of counts) {
      context.globalAlpha = 0.15 + 0.85 * (Math.log2(count + 1) / Math.log2(most + 1));
      context.fillRect(Math.floor(key / 1024) * cellWidth, plot - ((key % 1024) - low + 1) * cellHeight, Math.max(1, cellWidth - 0.5), Math.max(1, cellHeight - 0.5));
    }
    context.globalAlpha = 1;
    const time = this.time();
    if (time !== null) {
      context.strokeStyle = color("focus");
      context.strokeRect((time[0] / this.slots()) * width, 0.5, ((time[1] - time[0]) / this.slots()) * width, plot - 1);
    }
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = color("ink");
    context.textBaseline = "top";
    context.fillText(duration(Math.round(2 ** (((high + 1) * 2) / bars))), 4, 3);
    context.textBaseline = "bottom";
    context.fillText(duration(Math.round(2 ** ((low * 2) / bars))), 4, plot - 3);
    context.textBaseline = "top";
    context.fillStyle = color("quiet");
    context.fillText("0 s", 0, plot + 5);
    context.textAlign = "right";
    context.fillText(duration(this.data.length ?? 0), width, plot + 5);
    context.textAlign = "left";
  }
}

/** The shape of a distribution; few calls are a line each. */
function violin(bars: Map<number, number>, low: number, high: number): Node {
  const [width, middle] = [150, 9];
  const x = (bar: number) => ((bar - low) / Math.max(1, high - low + 1)) * width;
  const sorted = [...bars].sort((a, b) => a[0] - b[0]);
  const all = sorted.reduce((sum, [, count]) => sum + count, 0);
  const most = Math.max(...bars.values());
  if (all <= 5) return picture(width, 18, [sorted.map(([bar]) => `M${x(bar + 0.5).toFixed(1)} 3v12`).join(""), "stroke"]);
  const d = sorted.map(([bar, count]) => {
    const half = Math.max(0.6, (Math.sqrt(count / most)) * 8);
    return `M${x(bar).toFixed(1)} ${(middle - half).toFixed(1)}h${(width / Math.max(1, high - low + 1)).toFixed(2)}v${(2 * half).toFixed(1)}H${x(bar).toFixed(1)}z`;
  }).join("");
  return picture(width, 18, [d, "area"]);
}

export class Slowest {
  private readonly panel = panel("slowest", "Slowest calls");
  readonly element = this.panel.element;
  private readonly table: Table<SlowCall>;
  private readonly command = commandLine(() => this.state.command(["calls", "--by-thread"], { more: ["--where", `duration >= ${exactTime(this.least())}`] }));
  private readonly call = make("div", { class: "call", "aria-live": "polite" });
  private rows: SlowCall[] = [];
  private chosen: SlowCall | null = null;

  constructor(private readonly calls: Calls, private readonly data: Data, private readonly state: State) {
    this.table = new Table<SlowCall>([
      { title: "duration", value: (call) => call.duration, text: (call) => duration(call.duration) },
      { title: "time", value: (call) => call.time, text: (call) => (call.time === null ? "" : duration(call.time)) },
      ...traceColumn<SlowCall>(data),
      { title: "thread", value: (call) => call.comm ?? "", text: (call) => `${call.comm ?? ""} ${call.tid ?? ""}`, isName: true },
      { title: "function", value: (call) => call.function, isName: true },
      { title: "arguments", value: (call) => text(call.args), isName: true },
      { title: "returns", value: (call) => text(call.retval) },
      { title: "caller", value: (call) => call.caller ?? "", isName: true },
    ], 0, (call) => this.choose(call), {
      label: "Slowest calls", isChosen: (call) => call === this.chosen, titleOf: (call) => `${call.function} ${text(call.args)}`,
    });
    this.panel.body.append(this.table.element, this.call, this.command.element);
  }

  private least(): number {
    return this.rows.reduce((least, call) => Math.min(least, call.duration), this.rows[0]?.duration ?? 0);
  }

  /** Selects the time and thread of a call, and shows all that is known of it. */
  private choose(call: SlowCall): void {
    this.chosen = call;
    const thread = this.data.threads.findIndex(([tid, , , trace]) => tid === call.tid && (trace ?? 0) === (call.trace ?? 0));
    this.state.change({ threads: thread < 0 ? new Set() : new Set([thread]) });
    if (call.time !== null) this.state.showSpan(call.time, call.time + Math.max(1, call.duration));
  }

  /** Frames of a stack, the innermost first, one a line. */
  private frames(stack: number | null): string {
    return stack == null ? "" : this.calls.stacks[stack]!.split(";").reverse().join("\n");
  }

  /** The calls in which a call was, the innermost first, with their durations. They are as long as it is, so the chart has them. */
  private callers({ time, duration: length, tid, function: name, caller, trace }: SlowCall): string[] {
    const { chart } = this.calls;
    const found: number[] = [];
    chart.begin.forEach((begin, call) => {
      const isAround = time !== null && begin <= time && begin + chart.length[call]! >= time + length;
      const thread = chart.thread[call]!;
      if (isAround && this.data.threads[thread]![0] === (tid ?? -1) && traceOf(this.data, thread) === (trace ?? 0)) found.push(call);
    });
    found.sort((a, b) => chart.depth[b]! - chart.depth[a]!);
    // Calls with the same time are the call, and what is inside of it.
    const own = found.findIndex((call) => chart.names[chart.function[call]!] === harmless(name) && chart.begin[call] === time && chart.length[call] === length);
    const around = found.slice(own + 1).map((call) => `${chart.names[chart.function[call]!]!} ${duration(chart.length[call]!)}`);
    return own < 0 || around.length === 0 ? (caller === null ? [] : [caller]) : around;
  }

  private showCall(): void {
    const call = this.chosen;
    if (call === null) {
      this.call.replaceChildren();
      return;
    }
    const lines: [string, string][] = [
      ["function", call.function], ["module", call.module ?? "unknown"], ["duration", duration(call.duration)],
      ["time", call.time === null ? "unknown" : exactTime(call.time)],
      ["arguments", call.args === null || call.args === undefined ? "not recorded" : Array.isArray(call.args) ? call.args.join("\n") : text(call.args)],
      ["returns", call.retval === null || call.retval === undefined ? "not recorded" : text(call.retval)],
      ["callers", this.callers(call).join("\n") || "unknown"],
      ["kernel stack", this.frames(call.kernel_stack)], ["user stack", this.frames(call.user_stack)],
    ];
    this.call.replaceChildren(make("table", {}, make("tbody", {}, ...lines.filter(([, value]) => value !== "")
      .map(([name, value]) => make("tr", {}, make("th", { scope: "row", class: "name" }, name), make("td", { class: "name" }, value))))));
  }

  update(): void {
    const { time, threads } = this.state.selection;
    const slot = this.data.slot ?? 1;
    const keys = new Set([...threads].map((index) => `${traceOf(this.data, index)}:${this.data.threads[index]![0]}`));
    const expression = this.state.expression();
    this.rows = this.calls.slowest.filter((call) =>
      (time === null || (call.time !== null && call.time >= time[0] * slot && call.time < time[1] * slot)) &&
      (keys.size === 0 || (call.tid !== null && keys.has(`${call.trace ?? 0}:${call.tid}`))) &&
      (expression === null || expression.test(call.function)));
    this.panel.note.replaceChildren(make("span", {},
      `of the slowest ${grouped(this.calls.slowest.length)} calls of the trace; a row selects its time and thread, and shows its stacks`));
    if (this.chosen !== null && !this.rows.includes(this.chosen)) this.chosen = null;
    this.showCall();
    this.table.show(this.rows);
    this.command.update();
  }
}

function text(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.map((one) => (typeof one === "string" ? harmless(one) : JSON.stringify(one))).join(", ");
  return typeof value === "string" ? value : JSON.stringify(value);
}
