// The course of each counter as a line, below the tracks and with their axis. Dragging zooms.

import type { CounterLine, Data } from "./data.ts";
import { Canvas, type Tip, color, commandLine, make, panel } from "./dom.ts";
import { counted, cut, cutBeforeNumber, duration } from "./format.ts";
import { drawLine, scaleOf, valueText, valuesAt, valuesIn } from "./lines.ts";
import { exactTime, readableRange, type State } from "./state.ts";
import { axis } from "./time.ts";

const RULER = 20;
const HEIGHT = 28;
const GAP = 4;
const FONT = "11px system-ui, sans-serif";

export class Courses {
  private readonly panel = panel("courses", "Counters over time");
  readonly element = this.panel.element;
  readonly hasSpan = true;
  private readonly canvas = new Canvas("Counters over time. Drag zooms, up and down choose a counter", 60);
  private readonly status = make("p", { class: "status", "aria-live": "polite" });
  private readonly command = commandLine(() => this.state.command(["sql", this.lines[Math.max(0, this.cursor)]!.sql], { threads: false }));
  private readonly lines: CounterLine[];
  private cursor = -1;
  private drag: { from: number; to: number } | null = null;

  constructor(private readonly data: Data, private readonly state: State, tip: Tip) {
    this.lines = data.lines ?? [];
    this.panel.body.append(this.canvas.element, this.status, this.command.element);
    const { element } = this.canvas;
    element.addEventListener("pointerdown", (event) => {
      const [x, y] = this.canvas.place(event);
      if (event.button !== 0) return;
      if (x >= this.left) {
        element.setPointerCapture(event.pointerId);
        this.drag = { from: x, to: x };
      }
      this.choose(this.rowAt(y));
    });
    element.addEventListener("pointermove", (event) => {
      const [x, y] = this.canvas.place(event);
      if (this.drag !== null) {
        this.drag.to = x;
        this.draw();
      }
      const line = this.lines[this.rowAt(y)];
      element.style.cursor = x < this.left ? "pointer" : "crosshair";
      const time = Math.round(this.timeAt(x));
      if (line === undefined) tip.hide();
      else if (x < this.left) tip.show([line.name, valuesIn(line, line.points, ...this.state.shown())], event);
      else tip.show([line.name, ...valuesAt(line, line.points, time), `at ${exactTime(time)}`], event);
    });
    element.addEventListener("pointerup", () => {
      const { drag } = this;
      this.drag = null;
      if (drag === null || Math.abs(drag.to - drag.from) <= 3) return this.draw();
      const [from, to] = [drag.from, drag.to].map((x) => this.timeAt(x)).sort((a, b) => a - b) as [number, number];
      this.state.showSpan(Math.floor(from), Math.ceil(to));
    });
    element.addEventListener("dblclick", () => this.state.change({ time: null }));
    element.addEventListener("pointerleave", () => tip.hide());
    element.addEventListener("keydown", (event) => {
      const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (step === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      this.choose(Math.max(0, Math.min(this.lines.length - 1, this.cursor + step)));
    });
    element.addEventListener("blur", () => this.choose(-1));
  }

  static has(data: Data): boolean {
    return (data.lines?.length ?? 0) > 0;
  }

  /** As wide as the names of the tracks, so that times are below each other. */
  private get left(): number {
    return Math.min(200, Math.max(90, this.canvas.width * 0.18));
  }

  private timeAt(x: number): number {
    const [from, to] = this.state.shown();
    return from + Math.max(0, Math.min(1, (x - this.left) / Math.max(1, this.canvas.width - this.left))) * (to - from);
  }

  private rowAt(y: number): number {
    return Math.floor((y - RULER) / (HEIGHT + GAP));
  }

  private choose(row: number): void {
    const line = this.lines[row];
    this.cursor = line === undefined ? -1 : row;
    this.status.textContent = line === undefined ? "" : `${line.name}: ${valuesIn(line, line.points, ...this.state.shown())}`;
    this.command.update();
    this.draw();
  }

  update(): void {
    const [from, to] = this.state.shown();
    const step = (this.data.length ?? 1) / 500;
    const hasSteps = this.lines.some((line) => line.points.some((point) => point[2] < point[3]));
    const notes = [readableRange(from, to), counted(this.lines.length, "counter"), ...(hasSteps ? [`in steps of at least ${duration(Math.max(1, Math.round(step)))}: the last value, and a stroke from the least to the largest`] : [])];
    this.panel.note.replaceChildren(...notes.map((line) => make("span", {}, line)));
    this.command.update();
    this.draw();
  }

  private draw(): void {
    const height = RULER + this.lines.length * (HEIGHT + GAP);
    if (!this.canvas.fit(height)) return;
    const { context, width } = this.canvas;
    const { left } = this;
    const [from, to] = this.state.shown();
    const wide = width - left;
    context.font = FONT;
    context.textBaseline = "top";
    axis(context, left, wide, from, to, RULER - 5, true);
    const letters = (pixels: number) => Math.floor((left - 8) / pixels);
    this.lines.forEach((line, row) => {
      const top = RULER + row * (HEIGHT + GAP);
      drawLine(context, line, line.points, (time) => left + ((time - from) / (to - from)) * wide, from, to, { left, right: width, top, height: HEIGHT });
      const [low, high] = scaleOf(line.points, from, to);
      context.font = row === this.cursor ? `600 ${FONT}` : FONT;
      context.textAlign = "left";
      context.textBaseline = "middle";
      context.fillStyle = color("ink");
      context.fillText(cutBeforeNumber(line.name, letters(5.8)), 2, top + 8, left - 8);
      context.fillStyle = color("quiet");
      const scale = low === high ? "no values" : `${low < 0 ? valueText(low, "") : "0"} to ${valueText(high, line.unit)}`;
      context.fillText(cut(scale, letters(5.6)), 2, top + 21, left - 8);
    });
    if (this.drag !== null) {
      context.fillStyle = color("veil");
      const [a, b] = [Math.max(left, Math.min(this.drag.from, this.drag.to)), Math.max(this.drag.from, this.drag.to)];
      context.fillRect(a, 0, b - a, height);
    }
  }
}
