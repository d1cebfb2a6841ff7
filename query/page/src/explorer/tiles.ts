// Tiles of the rows in view, by kind. While the next one is on its way, the last one is drawn at its new place.

import { type Kind, type Progress, type Tile, get, isCanceled, message, restore } from "./api.ts";

/** Tiles that are kept. */
const MOST = 60;

export interface Shown {
  from: number;
  to: number;
  step: number;
  tile: Tile;
}

interface Wanted {
  key: string;
  controller: AbortController;
}

/** Step and window of a range on so many pixels: a power of two, and a part more on both sides, so that small moves need no request. */
export function windowOf(from: number, to: number, pixels: number): { from: number; to: number; step: number } {
  const perPixel = (to - from) / Math.max(1, pixels);
  const step = 2 ** Math.max(0, Math.round(Math.log2(perPixel)));
  const unit = step * 128;
  return { from: (Math.floor(from / unit) - 1) * unit, to: (Math.ceil(to / unit) + 1) * unit, step };
}

export class Tiles {
  private readonly cache = new Map<string, Shown>();
  private readonly last = new Map<Kind, Shown>();
  private readonly wanted = new Map<Kind, Wanted>();
  readonly errors = new Map<Kind, string>();
  /** Thousandths of the states that are read, if they are waited for. */
  progress: number | null = null;
  private timer = 0;
  /** Time of the last finished picture in milliseconds, for measurements. */
  private begin = 0;

  constructor(private readonly onTile: () => void) {}

  get isLoading(): boolean {
    return this.wanted.size > 0;
  }

  /** Thousandths of the time of which the states are made that are drawn; null if they are exact. */
  get about(): number | null {
    const parts = [...this.last.values()].flatMap((shown) => shown.tile.about ?? []);
    return parts.length === 0 ? null : Math.min(...parts);
  }

  /** Forgets all pictures; those of a trace that grows stay until the new ones are there. */
  clear(grows = false): void {
    for (const { controller } of this.wanted.values()) controller.abort();
    this.wanted.clear();
    if (!grows) this.last.clear();
    this.cache.clear();
    this.errors.clear();
  }

  /** The tile to draw now; asks for the right one. */
  of(kind: Kind, trace: number, from: number, to: number, pixels: number, ids: number[]): Shown | null {
    const window = windowOf(from, to, pixels);
    const key = [kind, trace, window.from, window.to, window.step, ids.join(",")].join(" ");
    const known = this.cache.get(key);
    if (known !== undefined) {
      this.cancel(kind);
      this.last.set(kind, known);
      return known;
    }
    if (this.wanted.get(kind)?.key !== key) {
      this.cancel(kind);
      void this.load(kind, key, trace, window, ids);
    }
    return this.last.get(kind) ?? null;
  }

  /** Nothing of this kind is in view. */
  forget(kind: Kind): void {
    this.cancel(kind);
    this.last.delete(kind);
  }

  private cancel(kind: Kind): void {
    this.wanted.get(kind)?.controller.abort();
    this.wanted.delete(kind);
  }

  private async load(kind: Kind, key: string, trace: number, window: { from: number; to: number; step: number }, ids: number[]): Promise<void> {
    const controller = new AbortController();
    if (this.wanted.size === 0) this.begin = performance.now();
    this.wanted.set(kind, { key, controller });
    this.follow(trace);
    try {
      // A wheel sends many ranges: only those that stay are asked for.
      await new Promise((done) => setTimeout(done, 30));
      if (controller.signal.aborted) return;
      const tile = restore(await get<Tile>("tile", { trace, kind, ...window, ids: ids.join(",") }, controller.signal));
      const shown = { ...window, tile };
      this.cache.set(key, shown);
      for (const old of this.cache.keys()) {
        if (this.cache.size <= MOST) break;
        this.cache.delete(old);
      }
      this.errors.delete(kind);
      this.last.set(kind, shown);
    } catch (error) {
      if (isCanceled(error)) return;
      this.errors.set(kind, message(error));
      this.last.delete(kind);
      // The same request is not repeated by the next frame.
      this.cache.set(key, { ...window, tile: { rows: [] } });
    }
    if (this.wanted.get(kind)?.controller === controller) this.wanted.delete(kind);
    if (this.wanted.size === 0 && this.about === null) this.progress = null;
    if (this.wanted.size === 0) document.documentElement.dataset["pictureMs"] = (performance.now() - this.begin).toFixed(1);
    this.onTile();
  }

  /** Asks how far the states are as long as anything is waited for, or drawn of a part of them. */
  private follow(trace: number): void {
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => {
      if (!this.isLoading && this.about === null) return;
      void get<Progress>("progress", { trace }).then(({ thousandths, is_done: isDone }) => {
        if (!this.isLoading && this.about === null) return;
        this.progress = thousandths;
        // The next frame asks for the exact ones.
        if (isDone) for (const [key, { tile }] of this.cache) if (tile.about !== undefined) this.cache.delete(key);
        this.onTile();
        this.follow(trace);
      }, () => {});
    }, 700);
  }
}
