// What is drawn over the rows: two marks with their distance, and arrows from wakers to the threads that they woke.

import { color } from "../dom.ts";
import { cut, duration } from "../format.ts";

/** A wake-up: its time, the waker (null: an interrupt), the woken thread. */
export interface Wake {
  time: number;
  waker: number | null;
  woken: number;
  /** What woke it. */
  by: string;
}

export interface Frame {
  context: CanvasRenderingContext2D;
  x: (time: number) => number;
  left: number;
  right: number;
  top: number;
  bottom: number;
}

/** The marks after one more at a time: the first one, the second one, then anew. */
export function marked(marks: number[], time: number): number[] {
  return marks.length === 1 ? [...marks, time] : [time];
}

/** The marks and their distance in words. */
export function markText(marks: number[], write: (time: number) => string): string {
  const [a, b] = marks;
  if (a === undefined) return "";
  return b === undefined ? `mark at ${write(a)}: m again measures` : `${write(Math.min(a, b))} to ${write(Math.max(a, b))}: ${duration(Math.abs(b - a))}`;
}

export function drawMarks(frame: Frame, marks: number[], ruler: number): void {
  const { context, left, right, bottom } = frame;
  const places = marks.map(frame.x);
  context.strokeStyle = context.fillStyle = color("hit");
  context.lineWidth = 1.5;
  for (const x of places) {
    if (x < left || x > right) continue;
    context.beginPath();
    context.moveTo(x, ruler - 9);
    context.lineTo(x, bottom);
    context.stroke();
    context.beginPath();
    context.moveTo(x - 5, ruler - 9);
    context.lineTo(x + 5, ruler - 9);
    context.lineTo(x, ruler - 2);
    context.fill();
  }
  if (places.length < 2) return;
  const [begin, end] = [Math.max(left, Math.min(...places)), Math.min(right, Math.max(...places))];
  if (end <= begin) return;
  const y = bottom - 12;
  context.beginPath();
  context.moveTo(begin, y);
  context.lineTo(end, y);
  context.stroke();
  label(frame, duration(Math.abs(marks[1]! - marks[0]!)), (begin + end) / 2, y - 8);
}

/** A text on the ground, within the frame. */
function label({ context, left, right }: Frame, text: string, x: number, y: number): void {
  context.textBaseline = "middle";
  context.textAlign = "center";
  const half = context.measureText(text).width / 2 + 4;
  const middle = Math.max(left + half, Math.min(right - half, x));
  context.fillStyle = color("ground");
  context.fillRect(middle - half, y - 7, 2 * half, 14);
  context.fillStyle = color("ink");
  context.fillText(text, middle, y);
  context.textAlign = "left";
}

/** Draws wake-ups; `row` is the middle of a thread's row, above or below the frame if it is not in view, null if the thread has none. */
export function drawWakes(frame: Frame, wakes: Wake[], row: (tid: number) => number | null): void {
  const { context, left, right, top, bottom } = frame;
  context.lineWidth = 1.5;
  wakes.forEach((wake, index) => {
    const x = frame.x(wake.time);
    const to = row(wake.woken);
    if (x < left || x > right || to === null) return;
    const from = (wake.waker === null ? null : row(wake.waker)) ?? top - 20;
    const isIn = (y: number) => y >= top && y <= bottom;
    if (!isIn(from) && !isIn(to) && from < top === to < top) return;
    const [begin, end] = [Math.max(top, Math.min(bottom, from)), Math.max(top, Math.min(bottom, to))];
    context.strokeStyle = context.fillStyle = color("focus");
    context.beginPath();
    context.moveTo(x, begin);
    context.lineTo(x, end);
    context.stroke();
    const way = end >= begin ? 1 : -1;
    context.beginPath();
    context.moveTo(x, end);
    context.lineTo(x - 4.5, end - 8 * way);
    context.lineTo(x + 4.5, end - 8 * way);
    context.fill();
    if (isIn(from)) {
      context.beginPath();
      context.arc(x, begin, 3, 0, 7);
      context.fill();
    }
    if (index === 0) label(frame, `woken by ${cut(wake.by, 40)}`, x, begin + 9 * way);
  });
}

/** The wake-up near a place. */
export function wakeAt(frame: Frame, wakes: Wake[], px: number): Wake | null {
  return wakes.find((wake) => Math.abs(frame.x(wake.time) - px) <= 2) ?? null;
}
