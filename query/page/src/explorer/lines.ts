// Counters as lines: the least and the largest value of each step, and the value that holds until the next one.

import { color } from "../dom.ts";
import { grouped } from "../format.ts";
import { get, isCanceled } from "./api.ts";
import { windowOf } from "./tiles.ts";

export interface Counter {
  name: string;
  unit: string;
  /** Whether a value is of the period that ends with it. */
  is_period: boolean;
}

/** Begin, end of a period, least, largest and last value. */
type Point = [number, number, number, number, number];

interface Answer {
  rows: { id: number; points: Point[] }[];
}

/** Answers that are kept. */
const MOST = 30;

export function valueText(value: number, unit: string): string {
  const shown = Math.abs(value) >= 1000 ? grouped(value) : String(Number(value.toPrecision(4)));
  return unit === "" ? shown : `${shown} ${unit}`;
}

export class Lines {
  counters: Counter[] = [];
  error = "";
  private readonly cache = new Map<string, Map<number, Point[]>>();
  private last = new Map<number, Point[]>();
  private wanted: { key: string; controller: AbortController } | null = null;

  constructor(private readonly onLines: () => void) {}

  get isLoading(): boolean {
    return this.wanted !== null;
  }

  set(counters: Counter[]): void {
    this.wanted?.controller.abort();
    this.wanted = null;
    this.cache.clear();
    this.last = new Map();
    this.error = "";
    this.counters = counters;
  }

  /** Asks for the lines in view. */
  load(trace: number, from: number, to: number, pixels: number, ids: number[]): void {
    if (ids.length === 0) return;
    const window = windowOf(from, to, pixels);
    const key = [trace, window.from, window.to, window.step, ids.join(",")].join(" ");
    const known = this.cache.get(key);
    if (known !== undefined) {
      this.last = known;
      return;
    }
    if (this.wanted?.key === key) return;
    this.wanted?.controller.abort();
    const controller = new AbortController();
    this.wanted = { key, controller };
    const done = (found: Map<number, Point[]>) => {
      if (this.wanted?.controller !== controller) return;
      this.wanted = null;
      this.cache.set(key, found);
      for (const old of this.cache.keys()) {
        if (this.cache.size <= MOST) break;
        this.cache.delete(old);
      }
      this.onLines();
    };
    setTimeout(() => {
      if (controller.signal.aborted) return;
      get<Answer>("counters", { trace, ...window, ids: ids.join(",") }, controller.signal).then((answer) => {
        this.error = "";
        done(new Map(answer.rows.map(({ id, points }) => [id, points])));
      }, (error: unknown) => {
        if (isCanceled(error)) return;
        this.error = String(error);
        done(new Map());
      });
    }, 30);
  }

  /** The points in view, and the one before. */
  private inView(id: number, from: number, to: number): Point[] {
    const points = this.last.get(id) ?? [];
    const first = points.findIndex((point) => point[0] > from);
    const begin = Math.max(0, (first < 0 ? points.length : first) - 1);
    return points.slice(begin).filter((point) => point[0] < to);
  }

  /** The range of the scale: from zero, unless a value is below. */
  scale(id: number, from: number, to: number): [number, number] {
    const points = this.inView(id, from, to);
    return [Math.min(0, ...points.map((point) => point[2])), Math.max(0, ...points.map((point) => point[3]))];
  }

  /** What the line says at a time. */
  at(id: number, time: number): string[] {
    const { unit, is_period: isPeriod } = this.counters[id]!;
    const points = this.last.get(id) ?? [];
    let found: Point | null = null;
    for (const point of points) if (point[0] <= time) found = point;
    if (found === null || (isPeriod && time > found[1])) return ["no value here"];
    const [, , low, high, last] = found;
    return low === high ? [valueText(last, unit)] : [`${valueText(low, unit)} to ${valueText(high, unit)} in this step`];
  }

  /** The values in view, for readers of the screen. */
  summary(id: number, from: number, to: number): string {
    const points = this.inView(id, from, to);
    const [, high] = this.scale(id, from, to);
    const { unit } = this.counters[id]!;
    return points.length === 0 ? "no values" : `${valueText(Math.min(...points.map((point) => point[2])), unit)} to ${valueText(high, unit)}`;
  }

  draw(context: CanvasRenderingContext2D, id: number, x: (time: number) => number, from: number, to: number, left: number, right: number, top: number, height: number): void {
    const [low, high] = this.scale(id, from, to);
    const place = (value: number) => top + height - 1 - ((value - low) / Math.max(1e-12, high - low)) * (height - 2);
    const points = this.inView(id, from, to);
    const isPeriod = this.counters[id]!.is_period;
    context.fillStyle = color("band");
    context.fillRect(left, top, right - left, height);
    const zero = place(Math.max(low, 0));
    points.forEach((point, index) => {
      const [begin, end, least, largest, last] = point;
      const next = points[index + 1]?.[0] ?? to;
      const until = isPeriod ? Math.min(end, Math.max(next, begin)) : next;
      const [x0, x1] = [Math.max(left, x(begin)), Math.min(right, x(until))];
      if (x1 < left) return;
      context.globalAlpha = 0.3;
      context.fillStyle = color("accent");
      context.fillRect(x0, Math.min(place(last), zero), Math.max(1, x1 - x0), Math.abs(zero - place(last)));
      context.globalAlpha = 1;
      context.fillRect(x0, place(last) - 0.75, Math.max(1, x1 - x0), 1.5);
      // More than one value in the step.
      if (least < largest) context.fillRect(x0, place(largest), 1, Math.max(1, place(least) - place(largest)));
    });
  }
}
