// The lines of counters in view, from the server.

import { type Counter, type Place, type Point, drawLine, scaleOf, valuesAt, valuesIn } from "../lines.ts";
import { get, isCanceled } from "./api.ts";
import { windowOf } from "./tiles.ts";

interface Answer {
  rows: { id: number; points: Point[] }[];
}

/** Answers that are kept. */
const MOST = 30;

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

  private points(id: number): Point[] {
    return this.last.get(id) ?? [];
  }

  /** What the line says at a time. */
  at(id: number, time: number): string[] {
    return valuesAt(this.counters[id]!, this.points(id), time);
  }

  /** The values in view, for readers of the screen. */
  summary(id: number, from: number, to: number): string {
    return valuesIn(this.counters[id]!, this.points(id), from, to);
  }

  draw(context: CanvasRenderingContext2D, id: number, x: (time: number) => number, from: number, to: number, place: Place): void {
    drawLine(context, this.counters[id]!, this.points(id), x, from, to, place);
  }

  scale(id: number, from: number, to: number): [number, number] {
    return scaleOf(this.points(id), from, to);
  }
}
