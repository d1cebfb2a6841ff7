// Panels of time: the whole trace as a strip, and the grid of seconds and fractions of a second. Both select by dragging.

import type { Cells, Data, Profile } from "./data.ts";
import { Canvas, Tip, button, color, commandLine, isDark, legendEntry, make, panel } from "./dom.ts";
import { amount, counted, duration } from "./format.ts";
import { heat, rates, timedProfile, type Rates } from "./rates.ts";
import type { State } from "./state.ts";

/** Steps of heat, dark on light and light on dark. */
const HEAT: [string[], string[]] = [
  ["#e3ecf6", "#c9dcee", "#a6c8e2", "#7db0d5", "#5795c5", "#3a7ab3", "#25609b", "#184a80", "#0f3563"],
  ["#17222e", "#1b3247", "#1f4463", "#255a82", "#2f73a3", "#458fbf", "#68acd4", "#97cae6", "#d0e8f5"],
];
const LEFT = 64;

/** Weight and count of the selected threads by slot: what began in it, and of time off the CPU, what is in it. */
function bySlot(cells: Cells | null, slots: number, hasSpans: boolean, steps: number, state: State): { weight: Float64Array; count: Float64Array } {
  const [weight, count] = [new Float64Array(slots), new Float64Array(slots)];
  const { threads } = state.selection;
  if (cells === null) return { weight, count };
  for (let index = 0; index < cells.slot.length; index++) {
    const slot = cells.slot[index]! * steps;
    if (slot < 0 || slot >= slots || (threads.size > 0 && !threads.has(cells.thread[index]!))) continue;
    const spans = hasSpans ? Math.max(1, cells.bar[index]!) : 1;
    const part = cells.weight[index]! / spans;
    for (let at = slot; at < Math.min(slots, slot + spans); at++) weight[at]! += part;
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
  private readonly legend = make("p", { class: "legend" });
  private last: Rates | null = null;
  /** Rows of slots that the grid draws as one, so that a cell has several samples. */
  private joined = 1;
  private readonly command = commandLine(() => this.state.command(this.heatmap(), { more: ["-o", "grid.svg"], time: false, trace: this.profile?.trace }));
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
    this.panel.body.append(this.strip.element, this.grid.element, this.legend, this.command.element);
    this.listen(this.strip, (x) => this.slotOfStrip(x));
    this.listen(this.grid, (x, y) => this.slotOfGrid(x, y));
    this.strip.element.addEventListener("keydown", (event) => this.key(event));
    this.grid.element.addEventListener("keydown", (event) => this.key(event));
  }

  private heatmap(): string[] {
    return this.profile?.heatmap ?? ["heatmap"];
  }

  private get profile(): Profile | null {
    return timedProfile(this.data, this.state);
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
    return Math.max(1, Math.ceil(this.slots / this.rows));
  }

  private slotOfGrid(x: number, y: number): number {
    const plot = this.gridHeight();
    const column = Math.floor(((x - LEFT) / (this.grid.width - LEFT)) * this.columns);
    const row = Math.floor((1 - y / plot) * (this.rows / this.joined)) * this.joined;
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
      const wide = canvas === this.grid ? this.joined : this.last?.step ?? 1;
      if (this.drag?.canvas === canvas && at !== this.drag.from) this.select(this.drag.from, at, canvas === this.grid ? this.joined : 1);
      const cells = this.totals();
      const first = canvas === this.grid ? at : Math.floor(at / wide) * wide;
      let [weight, count] = [0, 0];
      for (let slot = first; slot < Math.min(this.slots, first + wide); slot++) {
        weight += cells.weight[slot]!;
        count += cells.count[slot]!;
      }
      const rate = canvas === this.strip && this.last !== null ? [`${(this.last.values[Math.floor(at / wide)] ?? 0).toFixed(2)} ${this.last.unit}`] : [];
      this.tip.show([`${label(first * this.slot)} to ${label((first + wide) * this.slot)}`, ...rate, this.text(weight, count)], event);
    });
    element.addEventListener("pointerup", (event) => {
      if (this.drag === null) return;
      const at = slotAt(...canvas.place(event));
      // A click selects the cell of a grid, and a hundredth of the strip.
      if (at === this.drag.from) {
        const half = canvas === this.strip ? Math.floor(this.slots / 200) : 0;
        this.select(at - half, at + half, canvas === this.grid ? this.joined : 1);
      }
      this.drag = null;
    });
    element.addEventListener("pointerleave", () => this.tip.hide());
  }

  private select(a: number, b: number, wide: number): void {
    this.state.change({ time: [Math.max(0, Math.min(a, b)), Math.min(this.slots, Math.max(a, b) + wide)] });
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
    const { profile } = this;
    return bySlot(this.cells(), this.slots, profile?.is_off_cpu === true, this.steps, this.state);
  }

  /** The calls whose times the page has. */
  private calls(): string {
    const { calls } = this.data;
    const known = calls?.rows.reduce((sum, row) => sum + row.count, 0) ?? 0;
    return known === calls?.count ? "calls" : `calls of the ${calls?.rows.length ?? 0} functions with the longest total`;
  }

  /** Slots of the page in a slot of the cells. */
  private get steps(): number {
    return this.profile === null ? this.data.calls?.steps ?? 1 : 1;
  }

  private get unit(): string {
    return this.profile?.unit ?? "ns";
  }

  private text(weight: number, count: number): string {
    const { profile } = this;
    if (profile?.is_count === true) return amount(weight, profile.unit);
    if (profile === null) return `${counted(count, "call")} began, ${amount(Math.round(weight), "ns")} in all`;
    return profile.is_off_cpu ? `${amount(Math.round(weight), "ns")} off the CPU, ${counted(count, "period")} began` : `${counted(count, "sample")}, ${amount(weight, this.unit)}`;
  }

  update(): void {
    const what = this.profile?.name ?? this.calls();
    const lost = (this.data.losses?.length ?? 0) > 0 ? ["red: events were lost"] : [];
    const totals = this.totals();
    const grid = this.profile?.is_off_cpu === true ? totals.weight : totals.count;
    this.joined = this.rowsToJoin(grid, totals.weight);
    const notes = [`${what}; column: ${label(this.column)}, from the bottom upwards; row: ${label(this.slot * this.joined)}`, ...lost];
    this.panel.note.replaceChildren(...notes.map((line) => make("span", {}, line)));
    // A very short trace has no seconds to compare; what is known of longer times only has no rows.
    for (const one of [this.grid.element, this.legend]) one.hidden = this.columns < 3 || this.steps > this.rows;
    this.drawStrip();
    this.drawGrid(grid);
    this.command.update();
  }

  /**
   * Cells of one or two samples are noise: rows are joined until a cell has some, but ten remain. If most slots are empty, that is so
   * only for slots in which a CPU that is never idle has few samples. Rows are at least as long as the slots of the cells.
   */
  private rowsToJoin(counts: Float64Array, weights: Float64Array): number {
    if (this.profile?.is_off_cpu === true) return 1;
    const known = counts.filter((count) => count > 0);
    const all = known.reduce((sum, count) => sum + count, 0);
    const mean = all / Math.max(1, known.length);
    const isSampled = this.profile !== null && !this.profile.is_count && this.profile.unit === "ns";
    const period = isSampled && all > 0 ? weights.reduce((sum, weight) => sum + weight, 0) / all : 0;
    const most = known.length * 2 > counts.length ? mean : period > 0 ? this.slot / period : 4;
    const { steps } = this;
    const fits = (step: number) => this.rows % step === 0 && this.rows / step >= 10 && step % steps === 0;
    let joined = Math.min(steps, this.rows);
    for (let step = 1; step <= this.rows; step++) if (fits(step) && (most / steps) * joined < 4) joined = step;
    return joined;
  }

  private drawStrip(): void {
    const plot = 62;
    if (!this.strip.fit(84)) return;
    const { context, width } = this.strip;
    const wide = Math.max(1, Math.floor(width - LEFT));
    const found = (this.last = rates(this.data, this.profile, this.state, this.slots, wide));
    const { values, most } = found;
    context.fillStyle = color("band");
    context.fillRect(LEFT, 0, wide, plot);
    for (const slot of this.data.losses ?? []) {
      context.fillStyle = color("loss");
      context.fillRect(LEFT + (slot / this.slots) * wide, 0, Math.max(2, wide / this.slots), plot);
    }
    context.fillStyle = color("accent");
    const bar = (wide * found.step) / this.slots;
    values.forEach((value, bin) => {
      const height = (Math.min(value, most) / most) * (plot - 6);
      const [x, end] = [bin * bar, Math.min(wide, (bin + 1) * bar)];
      context.fillRect(LEFT + x, plot - height, Math.max(0.6, end - x - (bar > 3 ? 0.5 : 0)), height);
    });
    this.shadeOutside(LEFT, wide, plot);
    context.fillStyle = color("quiet");
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "top";
    context.textAlign = "right";
    context.fillText(most < 100 ? `${Number(most.toFixed(2))}` : amount(most, "").trim(), LEFT - 6, 1, LEFT - 8);
    context.fillText(found.unit, LEFT - 6, 15, LEFT - 8);
    this.strip.element.setAttribute("aria-label",
      `Weight over time, up to ${Number(most.toFixed(2))} ${found.unit}. Drag to select; arrow keys move the selection`);
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
    const { joined } = this;
    const sums = new Float64Array(this.slots);
    count.forEach((value, slot) => (sums[slot - (slot % joined)]! += value));
    const scale = heat(sums, HEAT[0].length);
    const heatColors = HEAT[isDark() ? 1 : 0];
    context.fillStyle = color("band");
    context.fillRect(LEFT, 0, wide, plot);
    const { time } = this.state.selection;
    const chosen = color("chosen");
    const gap = cellWidth > 4 ? 0.6 : 0;
    for (let slot = 0; slot < this.slots; slot += joined) {
      const value = sums[slot]!;
      const isSelected = time !== null && slot + joined > time[0] && slot < time[1];
      if (value === 0 && !isSelected) continue;
      const x = LEFT + Math.floor(slot / this.rows) * cellWidth;
      const y = plot - ((slot % this.rows) + joined) * cellHeight;
      context.globalAlpha = time === null || isSelected ? 1 : 0.3;
      context.fillStyle = value === 0 ? chosen : heatColors[scale.step(value)]!;
      context.fillRect(x, y, cellWidth - gap, cellHeight * joined - (cellHeight * joined > 3 ? 0.5 : 0));
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
    const noun = this.profile === null ? "calls" : this.profile.is_off_cpu ? "of threads off the CPU" : this.profile.is_count ? this.profile.unit : "samples";
    const words = (value: number) => (this.profile?.is_off_cpu === true ? label(Math.round(value)) : amount(value, "").trim());
    this.legend.replaceChildren(
      ...(scale.low > 0 ? [`up to ${words(scale.low)}`] : ["1"]), make("span", { class: "keys" }, ...heatColors.map((fill) => legendEntry(fill, ""))),
      `${words(scale.high)} ${scale.high > scale.low ? "or more " : ""}${noun} in ${label(this.slot * joined)}`);
  }
}
