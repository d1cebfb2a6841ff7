// Which threads have events in view: the others need no row. While the next answer is on its way, the last one holds.

import { type Active, get, isCanceled } from "./api.ts";

/** Time without another range until it is asked for. */
const QUIET_MS = 120;
/** Time until an answer that is not known yet is asked for again. */
const AGAIN_MS = 1500;
const MOST = 40;

export class ActiveThreads {
  private readonly cache = new Map<string, ReadonlySet<number>>();
  private last: ReadonlySet<number> | null = null;
  private wanted: { key: string; controller: AbortController } | null = null;
  /** The range without an answer. */
  private unknown = "";

  constructor(private readonly onAnswer: () => void) {}

  get isLoading(): boolean {
    return this.wanted !== null;
  }

  /** Forgets all answers; the last one of a trace that grows holds until there is another. */
  clear(grows: boolean): void {
    this.cancel();
    this.cache.clear();
    this.unknown = "";
    if (!grows) this.last = null;
  }

  /** The threads with events in a range; null: not known. */
  of(trace: number, from: number, to: number): ReadonlySet<number> | null {
    const key = `${trace} ${from} ${to}`;
    const known = this.cache.get(key);
    if (known !== undefined) {
      this.cancel();
      this.last = known;
    } else if (this.wanted?.key !== key && this.unknown !== key) {
      this.cancel();
      void this.load(key, trace, from, to);
    }
    return this.last;
  }

  private cancel(): void {
    this.wanted?.controller.abort();
    this.wanted = null;
  }

  private async load(key: string, trace: number, from: number, to: number): Promise<void> {
    const controller = new AbortController();
    this.wanted = { key, controller };
    try {
      // A wheel sends many ranges: only those that stay are asked for.
      await new Promise((done) => setTimeout(done, this.last === null ? 0 : QUIET_MS));
      if (controller.signal.aborted) return;
      const { tids } = await get<Active>("active", { trace, from: Math.floor(from), to: Math.ceil(to) }, controller.signal);
      if (tids === null) this.wait(key);
      else this.keep(key, new Set(tids));
    } catch (error) {
      if (isCanceled(error)) return;
      // All rows are shown.
      this.unknown = key;
      this.last = null;
    }
    if (this.wanted?.controller === controller) this.wanted = null;
    this.onAnswer();
  }

  private keep(key: string, tids: ReadonlySet<number>): void {
    this.cache.set(key, tids);
    for (const old of this.cache.keys()) {
      if (this.cache.size <= MOST) break;
      this.cache.delete(old);
    }
  }

  /** Nothing is hidden as long as the states are being read; then the range is asked for again. */
  private wait(key: string): void {
    this.unknown = key;
    this.last = null;
    setTimeout(() => {
      if (this.unknown !== key) return;
      this.unknown = "";
      this.onAnswer();
    }, AGAIN_MS);
  }
}
