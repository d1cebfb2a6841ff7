// Rows of a query as a chart, by the types of their columns.

import { Canvas, type Tip, color, legendEntry, make } from "../dom.ts";
import { cut, duration, grouped, harmless, percent } from "../format.ts";
import { exactTime } from "../state.ts";
import type { Cell, FlameTree, Grid } from "./api.ts";
import { paletteColor } from "./palette.ts";

export type ChartKind = "line" | "bars" | "heat map" | "flame graph";

const HEIGHT = 260;
const LEFT = 92;
const BAR = 18;
const FONT = "11px system-ui, 'DejaVu Sans', sans-serif";
/** Bars, lines and cells of a chart. */
const MOST_BARS = 60;
const MOST_LINES = 8;
const [ACROSS, UP] = [80, 24];

type Column = Grid["columns"][number];

/** Whether values are amounts. IDs are numbers, but names of things. */
const isAmount = ({ kind, name }: Column) => kind !== "text" && !(kind === "number" && /^(tid|pid|cpu|node|line|depth|event_id)$|_(tid|pid|cpu|id)$/.test(name));

/** The charts that rows can be. */
export function chartsOf({ columns, rows }: Grid): ChartKind[] {
  if (rows.length === 0) return [];
  const numbers = columns.filter(isAmount).length;
  const texts = columns.length - numbers;
  const stacks = columns.findIndex(({ name, kind }, index) => kind === "text" && (/stack/i.test(name) || rows.some((row) => String(row[index] ?? "").includes(";"))));
  return [
    ...(numbers >= 2 && isAmount(columns[0]!) ? ["line" as const] : []), ...(texts >= 1 && numbers >= 1 ? ["bars" as const] : []),
    ...(numbers >= 2 ? ["heat map" as const] : []), ...(stacks >= 0 && numbers >= 1 ? ["flame graph" as const] : []),
  ];
}

/** A cell as a number; times are relative to the start of the trace. */
function numberOf(cell: Cell, kind: string, start: bigint): number {
  if (cell === null || typeof cell === "boolean") return NaN;
  if (kind === "time") return Number(BigInt(cell) - start);
  return Number(cell);
}

function valueOf(value: number, kind: string): string {
  if (kind === "time") return value < 0 ? `-${exactTime(Math.round(-value))}` : exactTime(Math.round(value));
  if (kind === "duration") return duration(value);
  if (kind === "share") return percent(value, 1);
  return Math.abs(value) >= 1000 && Number.isInteger(value) ? grouped(value) : String(Number(value.toPrecision(4)));
}

/** The stacks of rows as a tree; the last number of a row is its weight. */
export function treeOf({ columns, rows }: Grid): FlameTree {
  const weight = columns.reduce((last, column, index) => (isAmount(column) ? index : last), -1);
  const stack = columns.findIndex(({ kind, name }, index) => kind === "text" && (/stack/i.test(name) || rows.some((row) => String(row[index] ?? "").includes(";"))));
  const tree: FlameTree = { command: "", names: [], parent: [0], label: [-1], own: [0], total: [0], omitted: 0, unit: columns[weight]?.kind === "duration" ? "ns" : "", is_cut: false, notes: "" };
  const names = new Map<string, number>();
  const nodes = new Map<string, number>();
  for (const row of rows) {
    const amount = Math.max(0, Number(row[weight] ?? 0) || 0);
    let node = 0;
    for (const frame of String(row[stack] ?? "").split(";").filter((one) => one !== "")) {
      const name = names.get(frame) ?? tree.names.push(frame) - 1;
      names.set(frame, name);
      const key = `${node} ${name}`;
      let next = nodes.get(key);
      if (next === undefined) {
        next = tree.parent.push(node) - 1;
        tree.label.push(name);
        tree.own.push(0);
        tree.total.push(0);
        nodes.set(key, next);
      }
      node = next;
    }
    tree.own[node]! += amount;
  }
  for (let node = tree.parent.length - 1; node >= 0; node--) {
    tree.total[node]! += tree.own[node]!;
    if (node > 0) tree.total[tree.parent[node]!]! += tree.total[node]!;
  }
  return tree;
}

/** Lines, bars or cells on a canvas. What is not shown is said. */
export class Chart {
  private readonly canvas: Canvas;
  private readonly note = make("p", { class: "note" });
  private readonly legend = make("p", { class: "legend" });
  readonly element: HTMLElement;
  private hits: ((x: number, y: number) => string[] | null) = () => null;

  constructor(private readonly grid: Grid, private readonly kind: Exclude<ChartKind, "flame graph">, private readonly start: bigint, private readonly tip: Tip) {
    this.canvas = new Canvas(`${kind} of ${grid.rows.length} rows; the table has the values`, HEIGHT);
    this.element = make("div", { class: "chart" }, this.legend, this.canvas.element, this.note);
    this.canvas.element.addEventListener("mousemove", (event) => {
      const [x, y] = this.canvas.place(event);
      const lines = this.hits(x, y);
      if (lines === null) this.tip.hide();
      else this.tip.show(lines, event);
    });
    this.canvas.element.addEventListener("mouseleave", () => this.tip.hide());
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  draw(): void {
    if (this.kind === "bars") this.bars();
    else if (this.kind === "line") this.lines();
    else this.cells();
  }

  private column(index: number): number[] {
    const { kind } = this.grid.columns[index]!;
    return this.grid.rows.map((row) => numberOf(row[index]!, kind, this.start));
  }

  private numeric(): number[] {
    return this.grid.columns.flatMap((column, index) => (isAmount(column) ? [index] : []));
  }

  private say(...notes: string[]): void {
    this.note.textContent = [...notes, ...(this.grid.is_cut ? ["the query has more rows"] : [])].join(" · ");
  }

  private bars(): void {
    const { columns, rows } = this.grid;
    const names = columns.flatMap((column, index) => (isAmount(column) ? [] : [index]));
    const value = this.numeric().at(-1)!;
    const { kind } = columns[value]!;
    const shown = rows.slice(0, MOST_BARS).map((row): [string, number] => [names.map((index) => harmless(String(row[index] ?? ""))).join(", "), numberOf(row[value]!, kind, this.start)]);
    const most = Math.max(1e-300, ...shown.map(([, one]) => (Number.isFinite(one) ? Math.abs(one) : 0)));
    const { context } = this.canvas;
    if (!this.canvas.fit(shown.length * BAR + 4)) return;
    const left = Math.min(340, this.canvas.width * 0.35);
    const wide = this.canvas.width - left - 90;
    context.font = FONT;
    context.textBaseline = "middle";
    shown.forEach(([name, one], index) => {
      const y = index * BAR + 2;
      context.textAlign = "right";
      context.fillStyle = color("ink");
      context.fillText(cut(name, Math.floor(left / 6)), left - 6, y + BAR / 2, left - 8);
      if (!Number.isFinite(one)) return;
      context.fillStyle = one < 0 ? color("focus") : color("accent");
      context.fillRect(left, y + 2, Math.max(1, (Math.abs(one) / most) * wide), BAR - 5);
      context.textAlign = "left";
      context.fillStyle = color("ink");
      context.fillText(valueOf(one, kind), left + (Math.abs(one) / most) * wide + 5, y + BAR / 2);
    });
    this.hits = (_, y) => {
      const found = shown[Math.floor((y - 2) / BAR)];
      return found === undefined ? null : [found[0], valueOf(found[1], kind)];
    };
    this.say(`${harmless(columns[value]!.name)} by ${names.map((index) => harmless(columns[index]!.name)).join(", ")}`, ...(rows.length > MOST_BARS ? [`the first ${MOST_BARS} of ${grouped(rows.length)} rows`] : []));
  }

  /** Draws a frame with the ends of both axes; returns how values become places. */
  private axes(xs: number[], ys: number[], xKind: string, yKind: string): { x: (value: number) => number; y: (value: number) => number; x0: number; x1: number; y0: number; y1: number } | null {
    const { canvas } = this;
    const ends = (all: number[]): [number, number] => all.reduce(([low, high], one) => (Number.isFinite(one) ? [Math.min(low, one), Math.max(high, one)] : [low, high]), [Infinity, -Infinity]);
    const [[x0, x1], [y0, y1]] = [ends(xs), ends(ys)];
    if (!canvas.fit(HEIGHT) || !Number.isFinite(x0) || !Number.isFinite(y0)) return null;
    const { context, width } = canvas;
    const [right, bottom] = [width - 12, HEIGHT - 20];
    const x = (value: number) => LEFT + ((value - x0) / Math.max(1e-300, x1 - x0)) * (right - LEFT);
    const y = (value: number) => bottom - ((value - y0) / Math.max(1e-300, y1 - y0)) * (bottom - 8);
    context.font = FONT;
    context.fillStyle = color("band");
    context.fillRect(LEFT, 8, right - LEFT, bottom - 8);
    context.fillStyle = color("quiet");
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const part of [0, 0.5, 1]) context.fillText(valueOf(y0 + (y1 - y0) * part, yKind), LEFT - 6, y(y0 + (y1 - y0) * part), LEFT - 8);
    for (const part of [0, 0.5, 1]) {
      context.textAlign = part === 0 ? "left" : part === 1 ? "right" : "center";
      context.fillText(valueOf(x0 + (x1 - x0) * part, xKind), x(x0 + (x1 - x0) * part), HEIGHT - 8);
    }
    return { x, y, x0, x1, y0, y1 };
  }

  private lines(): void {
    const { columns } = this.grid;
    const [first, ...others] = this.numeric();
    const shown = others.slice(0, MOST_LINES);
    const xs = this.column(first!);
    const all = shown.map((index) => this.column(index));
    const kind = columns[shown[0]!]!.kind;
    const axes = this.axes(xs, [0, ...all.flat()], columns[first!]!.kind, kind);
    if (axes === null) {
      this.say("no numbers");
      return;
    }
    const { context } = this.canvas;
    const order = xs.map((_, index) => index).filter((index) => Number.isFinite(xs[index])).sort((a, b) => xs[a]! - xs[b]!);
    all.forEach((values, line) => {
      context.strokeStyle = paletteColor(line);
      context.lineWidth = 1.75;
      context.beginPath();
      let isBroken = true;
      for (const index of order) {
        const value = values[index]!;
        // Where there is no value, there is no line.
        if (!Number.isFinite(value)) isBroken = true;
        else if (isBroken) {
          context.moveTo(axes.x(xs[index]!) - 0.5, axes.y(value));
          context.lineTo(axes.x(xs[index]!) + 0.5, axes.y(value));
          isBroken = false;
        } else context.lineTo(axes.x(xs[index]!), axes.y(value));
      }
      context.stroke();
    });
    this.legend.replaceChildren(...shown.map((index, line) => legendEntry(paletteColor(line), harmless(columns[index]!.name))));
    this.hits = (x) => {
      if (order.length === 0) return null;
      const near = order.reduce((best, index) => (Math.abs(axes.x(xs[index]!) - x) < Math.abs(axes.x(xs[best]!) - x) ? index : best), order[0]!);
      return [valueOf(xs[near]!, columns[first!]!.kind), ...shown.map((index, line) => `${harmless(columns[index]!.name)}: ${Number.isFinite(all[line]![near]!) ? valueOf(all[line]![near]!, columns[index]!.kind) : "none"}`)];
    };
    const mixed = shown.some((index) => columns[index]!.kind !== kind) ? ["the lines have different units: the scale is the first one's"] : [];
    this.say(`over ${harmless(columns[first!]!.name)}`, ...mixed, ...(others.length > MOST_LINES ? [`the first ${MOST_LINES} of ${others.length} columns`] : []));
  }

  /** A cell is the sum of the third number, or the number of rows. */
  private cells(): void {
    const { columns } = this.grid;
    const [first, second, third] = this.numeric();
    const [xs, ys] = [this.column(first!), this.column(second!)];
    const axes = this.axes(xs, ys, columns[first!]!.kind, columns[second!]!.kind);
    if (axes === null) {
      this.say("no numbers");
      return;
    }
    const weights = third === undefined ? null : this.column(third);
    const cells = new Float64Array(ACROSS * UP);
    const bin = (value: number, low: number, high: number, bins: number) => Math.min(bins - 1, Math.floor(((value - low) / Math.max(1e-300, high - low)) * bins));
    xs.forEach((x, index) => {
      const y = ys[index]!;
      const weight = weights === null ? 1 : weights[index]!;
      if (Number.isFinite(x) && Number.isFinite(y) && Number.isFinite(weight)) cells[bin(y, axes.y0, axes.y1, UP) * ACROSS + bin(x, axes.x0, axes.x1, ACROSS)]! += weight;
    });
    const most = Math.max(1e-300, ...cells);
    const { context, width } = this.canvas;
    const [wide, high] = [(width - 12 - LEFT) / ACROSS, (HEIGHT - 28) / UP];
    context.fillStyle = color("focus");
    cells.forEach((weight, index) => {
      if (weight <= 0) return;
      context.globalAlpha = 0.15 + 0.85 * (Math.log1p((weight / most) * 100) / Math.log1p(100));
      context.fillRect(LEFT + (index % ACROSS) * wide, HEIGHT - 20 - (Math.floor(index / ACROSS) + 1) * high, Math.max(1, wide - 0.5), high - 0.5);
    });
    context.globalAlpha = 1;
    this.hits = (x, y) => {
      const [column, row] = [Math.floor((x - LEFT) / wide), Math.floor((HEIGHT - 20 - y) / high)];
      if (column < 0 || column >= ACROSS || row < 0 || row >= UP) return null;
      const at = (low: number, up: number, bins: number, place: number, kind: string) => `${valueOf(low + ((up - low) * place) / bins, kind)} to ${valueOf(low + ((up - low) * (place + 1)) / bins, kind)}`;
      const weight = cells[row * ACROSS + column]!;
      return [weights === null ? `${grouped(weight)} rows` : `${harmless(columns[third!]!.name)}: ${valueOf(weight, columns[third!]!.kind)}`,
        at(axes.x0, axes.x1, ACROSS, column, columns[first!]!.kind), at(axes.y0, axes.y1, UP, row, columns[second!]!.kind)];
    };
    this.say(`${harmless(columns[second!]!.name)} over ${harmless(columns[first!]!.name)}`, third === undefined ? "shade: number of rows" : `shade: sum of ${harmless(columns[third]!.name)}`);
  }
}
