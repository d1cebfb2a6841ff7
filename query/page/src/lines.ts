// Counters as lines: the least and the largest value of each step, and the value that holds until the next one.

import { color } from "./dom.ts";
import { grouped } from "./format.ts";

export interface Counter {
  name: string;
  unit: string;
  /** Whether a value is of the period that ends with it. */
  is_period: boolean;
}

/** Begin, end of a period, least, largest and last value. */
export type Point = [number, number, number, number, number];

/** Where a line is drawn, in pixels. */
export interface Place {
  left: number;
  right: number;
  top: number;
  height: number;
}

export function valueText(value: number, unit: string): string {
  const shown = Math.abs(value) >= 1000 ? grouped(value) : String(Number(value.toPrecision(4)));
  return unit === "" ? shown : `${shown} ${unit}`;
}

/** The points in view, and the one before. */
function inView(points: Point[], from: number, to: number): Point[] {
  const first = points.findIndex((point) => point[0] > from);
  const begin = Math.max(0, (first < 0 ? points.length : first) - 1);
  return points.slice(begin).filter((point) => point[0] < to);
}

/** The range of the scale: from zero, unless a value is below. */
export function scaleOf(all: Point[], from: number, to: number): [number, number] {
  const points = inView(all, from, to);
  return [Math.min(0, ...points.map((point) => point[2])), Math.max(0, ...points.map((point) => point[3]))];
}

/** What the line says at a time. */
export function valuesAt({ unit, is_period: isPeriod }: Counter, points: Point[], time: number): string[] {
  let found: Point | null = null;
  for (const point of points) if (point[0] <= time) found = point;
  if (found === null || (isPeriod && time > found[1])) return ["no value here"];
  const [, , low, high, last] = found;
  return low === high ? [valueText(last, unit)] : [`${valueText(low, unit)} to ${valueText(high, unit)} in this step`];
}

/** The values in view in words. */
export function valuesIn({ unit }: Counter, all: Point[], from: number, to: number): string {
  const points = inView(all, from, to);
  const [, high] = scaleOf(all, from, to);
  return points.length === 0 ? "no values" : `${valueText(Math.min(...points.map((point) => point[2])), unit)} to ${valueText(high, unit)}`;
}

export function drawLine(context: CanvasRenderingContext2D, { is_period: isPeriod }: Counter, all: Point[], x: (time: number) => number, from: number, to: number, { left, right, top, height }: Place): void {
  const [low, high] = scaleOf(all, from, to);
  const place = (value: number) => top + height - 1 - ((value - low) / Math.max(1e-12, high - low)) * (height - 2);
  const points = inView(all, from, to);
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
