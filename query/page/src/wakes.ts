// Wake-ups in tracks: arrows from the waker to the woken thread.

import { STATES, type Track, type Wakes } from "./data.ts";
import { color } from "./dom.ts";

/** First index whose value is greater. */
export function upper(values: Float64Array, value: number): number {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Wake-ups in a range, by one of some threads of another one. */
export function wakesIn(wakes: Wakes | null, threads: Set<number>, from: number, to: number): number[] {
  const found: number[] = [];
  if (wakes === null) return found;
  const { time, waker, woken } = wakes;
  for (let wake = upper(time, from - 1); wake < time.length && time[wake]! < to; wake++) {
    if (waker[wake] !== woken[wake] && threads.has(waker[wake]!) && threads.has(woken[wake]!)) found.push(wake);
  }
  return found;
}

/** The wake-up after which a thread began to run at a time; null if it did not wait for one, or the page has none. */
export function wakeOf(wakes: Wakes | null, track: Track, thread: number, begin: number): number | null {
  if (wakes === null) return null;
  let before = upper(track.begin, begin - 1) - 1;
  while (before >= 0 && STATES[track.what[before]!] !== "running") before--;
  const ran = before < 0 ? 0 : track.begin[before]! + track.length[before]!;
  for (let wake = upper(wakes.time, begin) - 1; wake >= 0 && wakes.time[wake]! >= ran; wake--) if (wakes.woken[wake] === thread) return wake;
  return null;
}

/** Draws the arrows between rows: `top` of a thread's row, and the place of a time. */
export function drawWakes(
  context: CanvasRenderingContext2D, wakes: Wakes | null, shown: number[], top: (thread: number) => number | undefined, row: number,
  place: (time: number) => number,
): void {
  if (wakes === null || shown.length === 0) return;
  context.strokeStyle = context.fillStyle = color("focus");
  context.lineWidth = 1;
  context.globalAlpha = shown.length > 60 ? 0.5 : 0.9;
  for (const wake of shown) {
    const [source, target] = [top(wakes.waker[wake]!), top(wakes.woken[wake]!)];
    if (source === undefined || target === undefined) continue;
    const x = Math.round(place(wakes.time[wake]!)) + 0.5;
    const isDown = target > source;
    const [begin, end] = [source + row / 2, target + (isDown ? 1 : row - 1)];
    const tip = end + (isDown ? -5 : 5);
    context.beginPath();
    context.moveTo(x, begin);
    context.lineTo(x, tip);
    context.stroke();
    context.beginPath();
    context.arc(x, begin, 1.7, 0, 2 * Math.PI);
    context.moveTo(x, end);
    context.lineTo(x - 3, tip);
    context.lineTo(x + 3, tip);
    context.fill();
  }
  context.globalAlpha = 1;
}
