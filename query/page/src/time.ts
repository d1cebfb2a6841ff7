// Panels of time: the whole trace as a strip, and the grid of seconds and fractions of a second. Both select by dragging.

import type { Cells, Data, Profile } from "./data.ts";
import { Canvas, Tip, button, color, commandLine, isDark, make, panel } from "./dom.ts";
import { amount, counted, duration } from "./format.ts";
import type { State } from "./state.ts";

/** Steps of heat, dark on light and light on dark. */
const HEAT: [string[], string[]] = [
  ["#e3ecf6", "#c9dcee", "#a6c8e2", "#7db0d5", "#5795c5", "#3a7ab3", "#25609b", "#184a80", "#0f3563"],
  ["#17222e", "#1b3247", "#1f4463", "#255a82", "#2f73a3", "#458fbf", "#68acd4", "#97cae6", "#d0e8f5"],
];
const LEFT = 64;

/** Weight and count of the selected threads by slot. */
function bySlot(cells: Cells | null, slots: number, state: State): { weight: Float64Array; count: Float64Array } {
  const [weight, count] = [new Float64Array(slots), new Float64Array(slots)];
  const { threads } = state.selection;
  if (cells === null) return { weight, count };
  for (let index = 0; index < cells.slot.length; index++) {
    const slot = cells.slot[index]!;
    if (slot < 0 || slot >= slots || (threads.size > 0 && !threads.has(cells.thread[index]!))) continue;
    weight[slot]! += cells.weight[index]!;
    count[slot]! += cells.count[index]!;
  }
  return { weight, count };
}

/** A step of a time axis with about `count` labels. */
function niceStep(length: number, count: number): number {
  const raw = length / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= raw) ?? raw;
}

function label(ns: number): string {
  if (ns === 0) return "0 s";
  return duration(ns).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");
}

/** Labels of a time axis below `top`, or above it. */
export function axis(context: CanvasRenderingContext2D, left: number, wide: number, from: number, to: number, top: number, isAbove = false): void {
  const step = niceStep(to - from, wide / 110);
  context.textAlign = "left";
  context.fillStyle = color("quiet");
  context.strokeStyle = color("line");
  context.lineWidth = 1;
  // Labels of a part are distances from its begin, if they would be alike otherwise.
  const isFine = from / step > 1e4;
  for (let time = isFine ? from : Math.ceil(from / step) * step; time <= to; time += step) {
    const x = left + ((time - from) / (to - from)) * wide;
    context.beginPath();
    context.moveTo(x + 0.5, top);
    context.lineTo(x + 0.5, top + 4);
    context.stroke();
    if (x < left + wide - 40) context.fillText(isFine ? `+${label(time - from)}` : label(time), x + 3, top + (isAbove ? -12 : 6));
  }
}

export class Time {
  private readonly panel = panel("time", "Time");
  readonly element = this.panel.element;
  private readonly strip = new Canvas("Weight over time. Drag to select; arrow keys move the selection", 84);
  private readonly grid = new Canvas("Grid of time. Drag to select", 262);
  private readonly command = commandLine(() => this.state.command(this.heatmap(), { more: ["-o", "grid.svg"], time: false }));
  private readonly slots: number;
  private readonly slot: number;
  private readonly column: number;
  private drag: { canvas: Canvas; from: number } | null = null;

  constructor(private readonly data: Data, private readonly state: State, private readonly tip: Tip) {
    this.slot = data.slot ?? 1;
    // Slots may be longer than what the grid had for columns.
    this.column = Math.max(data.column ?? 1, this.slot);
    this.slots = Math.floor((data.length ?? 1) / this.slot) + 1;
    this.panel.tools.append(button("all time", "Select all time (0)", () => state.change({ time: null })));
    this.panel.body.append(this.strip.element, this.grid.element, this.command.element);
    this.listen(this.strip, (x) => this.slotOfStrip(x));
    this.listen(this.grid, (x, y) => this.slotOfGrid(x, y));
    this.strip.element.addEventListener("keydown", (event) => this.key(event));
    this.grid.element.addEventListener("keydown", (event) => this.key(event));
  }

  private heatmap(): string[] {
    return this.profile?.heatmap ?? ["heatmap"];
  }

  /** The selected profile if it has times, otherwise the first one that has; null if only calls have. */
  private get profile(): Profile | null {
    const { profiles } = this.data;
    const chosen = profiles[this.state.selection.profile];
    return chosen?.cells != null ? chosen : profiles.find((one) => one.cells !== null) ?? null;
  }

  private cells(): Cells | null {
    return this.profile?.cells ?? this.data.calls?.cells ?? null;
  }

  private slotOfStrip(x: number): number {
    return Math.max(0, Math.min(this.slots - 1, Math.floor(((x - LEFT) / (this.strip.width - LEFT)) * this.slots)));
  }

  private get rows(): number {
    return Math.max(1, Math.round(this.column / this.slot));
  }

  private get columns(): number {
    return Math.max(20, Math.ceil(this.slots / this.rows));
  }

  private slotOfGrid(x: number, y: number): number {
    const plot = this.gridHeight();
    const column = Math.floor(((x - LEFT) / (this.grid.width - LEFT)) * this.columns);
    const row = Math.floor((1 - y / plot) * this.rows);
    return Math.max(0, Math.min(this.slots - 1, Math.max(0, column) * this.rows + Math.max(0, Math.min(this.rows - 1, row))));
  }

  private gridHeight(): number {
    return this.rows >= 10 ? 240 : 24 * this.rows;
  }

  private listen(canvas: Canvas, slotAt: (x: number, y: number) => number): void {
    const { element } = canvas;
    element.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      element.setPointerCapture(event.pointerId);
      this.drag = { canvas, from: slotAt(...canvas.place(event)) };
    });
    element.addEventListener("pointermove", (event) => {
      const at = slotAt(...canvas.place(event));
      if (this.drag?.canvas === canvas && at !== this.drag.from) this.select(this.drag.from, at);
      const cells = this.totals();
      const from = at * this.slot;
      this.tip.show([`${label(from)} to ${label(from + this.slot)}`, this.text(cells.weight[at]!, cells.count[at]!)], event);
    });
    element.addEventListener("pointerup", (event) => {
      if (this.drag === null) return;
      const at = slotAt(...canvas.place(event));
      // A click selects the cell of a grid, and a hundredth of the strip.
      if (at === this.drag.from) {
        const half = canvas === this.strip ? Math.floor(this.slots / 200) : 0;
        this.select(at - half, at + half);
      }
      this.drag = null;
    });
    element.addEventListener("pointerleave", () => this.tip.hide());
  }

  private select(a: number, b: number): void {
    this.state.change({ time: [Math.max(0, Math.min(a, b)), Math.min(this.slots, Math.max(a, b) + 1)] });
  }

  private key(event: KeyboardEvent): void {
    const { time } = this.state.selection;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const [from, to] = time ?? [0, Math.max(1, Math.ceil(this.slots / 20))];
    const width = to - from;
    if (event.shiftKey) {
      this.state.change({ time: [from, Math.max(from + 1, Math.min(this.slots, to + step * Math.max(1, Math.ceil(width / 10))))] });
      return;
    }
    const start = time === null ? 0 : Math.max(0, Math.min(this.slots - width, from + step * width));
    this.state.change({ time: [start, start + width] });
  }

  private totals(): { weight: Float64Array; count: Float64Array } {
    return bySlot(this.cells(), this.slots, this.state);
  }

  private get unit(): string {
    return this.profile?.unit ?? "ns";
  }

  private text(weight: number, count: number): string {
    const { profile } = this;
    if (profile?.is_count === true) return amount(weight, profile.unit);
    return `${counted(count, profile === null ? "call" : "sample")}, ${amount(weight, this.unit)}`;
  }

  update(): void {
    const what = this.profile?.name ?? "calls";
    const lost = (this.data.losses?.length ?? 0) > 0 ? ["red: events were lost"] : [];
    const notes = [`${what}; column: ${label(this.column)}, from the bottom upwards; row: ${label(this.slot)}`, ...lost];
    this.panel.note.replaceChildren(...notes.map((line) => make("span", {}, line)));
    const totals = this.totals();
    this.drawStrip(totals.weight);
    this.drawGrid(totals.count);
    this.command.update();
  }

  private drawStrip(weight: Float64Array): void {
    const plot = 62;
    if (!this.strip.fit(84)) return;
    const { context, width } = this.strip;
    const wide = Math.max(1, Math.floor(width - LEFT));
    const bins = new Float64Array(Math.min(wide, this.slots));
    weight.forEach((value, slot) => (bins[Math.floor((slot / this.slots) * bins.length)]! += value));
    // A partial last bin is as high as the others are.
    const each = (this.slots / bins.length) * this.slot;
    const most = Math.max(...bins, 1e-9);
    const isTime = this.unit === "ns";
    context.fillStyle = color("band");
    context.fillRect(LEFT, 0, wide, plot);
    for (const slot of this.data.losses ?? []) {
      context.fillStyle = color("loss");
      context.fillRect(LEFT + (slot / this.slots) * wide, 0, Math.max(2, wide / this.slots), plot);
    }
    context.fillStyle = color("accent");
    const bar = wide / bins.length;
    bins.forEach((value, bin) => {
      const height = (value / most) * (plot - 6);
      context.fillRect(LEFT + bin * bar, plot - height, Math.max(0.6, bar > 3 ? bar - 0.5 : bar), height);
    });
    this.shadeOutside(LEFT, wide, plot);
    context.fillStyle = color("quiet");
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "top";
    context.textAlign = "right";
    context.fillText(isTime ? `${(most / each).toFixed(2)}` : amount(most, ""), LEFT - 6, 1, LEFT - 8);
    context.fillText(isTime ? "CPUs" : this.unit, LEFT - 6, 15, LEFT - 8);
    axis(context, LEFT, wide, 0, this.slots * this.slot, plot);
  }

  private shadeOutside(left: number, wide: number, plot: number): void {
    const { time } = this.state.selection;
    if (time === null) return;
    const { context } = this.strip;
    const [from, to] = time.map((slot) => left + (slot / this.slots) * wide) as [number, number];
    context.fillStyle = color("veil");
    context.fillRect(left, 0, from - left, plot);
    context.fillRect(to, 0, left + wide - to, plot);
    context.strokeStyle = color("focus");
    context.lineWidth = 1.5;
    context.strokeRect(from, 0.75, Math.max(1, to - from), plot - 1.5);
  }

  private drawGrid(count: Float64Array): void {
    const plot = this.gridHeight();
    if (!this.grid.fit(plot + 22)) return;
    const { context, width } = this.grid;
    const wide = width - LEFT;
    const [cellWidth, cellHeight] = [wide / this.columns, plot / this.rows];
    const most = count.reduce((a, b) => Math.max(a, b), 1);
    const heat = HEAT[isDark() ? 1 : 0];
    context.fillStyle = color("band");
    context.fillRect(LEFT, 0, wide, plot);
    const { time } = this.state.selection;
    const chosen = color("chosen");
    const gap = cellWidth > 4 ? 0.6 : 0;
    for (let slot = 0; slot < this.slots; slot++) {
      const value = count[slot]!;
      const isSelected = time !== null && slot >= time[0] && slot < time[1];
      if (value === 0 && !isSelected) continue;
      const x = LEFT + Math.floor(slot / this.rows) * cellWidth;
      const y = plot - ((slot % this.rows) + 1) * cellHeight;
      context.globalAlpha = time === null || isSelected ? 1 : 0.3;
      context.fillStyle = value === 0 ? chosen : heat[Math.min(8, Math.floor((Math.log2(value + 1) / Math.log2(most + 1)) * 8.999))]!;
      context.fillRect(x, y, cellWidth - gap, cellHeight - (cellHeight > 3 ? 0.5 : 0));
    }
    context.globalAlpha = 1;
    for (const slot of this.data.losses ?? []) {
      context.fillStyle = color("loss");
      const x = LEFT + Math.floor(slot / this.rows) * cellWidth;
      context.fillRect(x, plot - ((slot % this.rows) + 1) * cellHeight, cellWidth, Math.max(2, cellHeight / 3));
    }
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.fillStyle = color("quiet");
    for (let fifth = 0; fifth <= 5; fifth++) {
      const y = Math.min(plot - 6, Math.max(6, plot - (plot / 5) * fifth));
      context.fillText(label((this.column / 5) * fifth), LEFT - 6, y, LEFT - 8);
    }
    context.textBaseline = "top";
    axis(context, LEFT, wide, 0, this.columns * this.column, plot);
  }
}
