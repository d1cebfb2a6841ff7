// How much of something there was at each time: CPUs in use, threads off the CPU, calls in progress, events a second.

import type { Calls, Data, Profile } from "./data.ts";
import type { State } from "./state.ts";

/** A bin has at least this many periods of a clock, since its samples come at distances of a period. */
const PERIODS = 5;

export interface Rates {
  /** By bin. */
  values: Float64Array;
  /** Slots of a bin. */
  step: number;
  unit: string;
  /** The greatest value of an axis. */
  most: number;
}

/** The selected profile if it has times, otherwise the first one that has; null if only calls have, or if they are selected. */
export function timedProfile(data: Data, state: State): Profile | null {
  const chosen = data.profiles[state.selection.profile];
  if (chosen?.cells != null) return chosen;
  return chosen?.kind === "calls" && data.calls !== null ? null : data.profiles.find((one) => one.cells !== null) ?? null;
}

/** Sums of densities over slots, which are added as ranges. */
class Densities {
  private readonly parts: Float64Array;
  private readonly steps: Float64Array;

  constructor(private readonly slots: number) {
    this.parts = new Float64Array(slots);
    this.steps = new Float64Array(slots + 1);
  }

  /** Adds a weight that is spread evenly from one place to another, in slots. What is outside is lost. */
  spread(weight: number, from: number, to: number): void {
    const width = to - from;
    const [first, last] = [Math.floor(from), Math.floor(to)];
    if (width <= 0 || first === last) {
      if (first >= 0 && first < this.slots) this.parts[first]! += weight;
      return;
    }
    const density = weight / width;
    if (first >= 0 && first < this.slots) this.parts[first]! += density * (first + 1 - from);
    if (last >= 0 && last < this.slots) this.parts[last]! += density * (to - last);
    const [begin, end] = [Math.max(0, Math.min(this.slots, first + 1)), Math.max(0, Math.min(this.slots, last))];
    if (begin < end) {
      this.steps[begin]! += density;
      this.steps[end]! -= density;
    }
  }

  sums(): Float64Array {
    let level = 0;
    return this.parts.map((part, slot) => part + (level += this.steps[slot]!));
  }
}

/** The number of CPUs of a trace's host. */
export function cpus(data: Data, trace = 0): number | null {
  const fact = data.traces[trace]?.facts.find(([name]) => name === "cpus")?.[1];
  const count = Number(fact);
  return Number.isInteger(count) && count > 0 ? count : null;
}

/** Weight by slot, spread over the time that it is of: a sample stands for the period before it, a call lasts its duration. */
export function weights(profile: Profile | null, calls: Calls | null, slots: number, slot: number, state: State): { sums: Float64Array; period: number } {
  const found = new Densities(slots);
  const cells = profile?.cells ?? calls?.cells ?? null;
  const { threads } = state.selection;
  let [all, samples] = [0, 0];
  if (cells === null) return { sums: found.sums(), period: 0 };
  const end = Math.max(1, state.data.length ?? 1) / slot;
  // Slots of calls may be longer than those of the page.
  const steps = profile === null ? calls!.steps : 1;
  if (profile === null && calls !== null && calls.chart.begin.length >= cells.count.reduce((sum, count) => sum + count, 0)) {
    // The page has every call with its exact times.
    const { begin, length, thread } = calls.chart;
    begin.forEach((time, index) => {
      if (threads.size > 0 && !threads.has(thread[index]!)) return;
      // A trace ends with its last event, calls may end later.
      const inside = Math.min(length[index]!, Math.max(0, end * slot - time));
      found.spread(inside, time / slot, (time + inside) / slot);
    });
    return { sums: found.sums(), period: 0 };
  }
  const isClock = profile !== null && profile.unit === "ns" && !profile.is_off_cpu;
  for (let index = 0; index < cells.slot.length; index++) {
    const at = cells.slot[index]! * steps;
    if (at < 0 || (threads.size > 0 && !threads.has(cells.thread[index]!))) continue;
    const [weight, count] = [cells.weight[index]!, cells.count[index]!];
    all += weight;
    samples += count;
    const middle = Math.min(at + steps / 2, end);
    const length = count > 0 ? weight / count / slot : 0;
    if (profile === null) found.spread(weight, length < 1 ? at : middle, length < 1 ? at + steps : middle + length);
    else if (profile.is_off_cpu) found.spread(weight, at, at + Math.max(1, cells.bar[index]!) - 1e-9);
    else if (isClock) found.spread(weight, Math.max(0, middle - length), middle);
    else found.spread(weight, at, at);
  }
  return { sums: found.sums(), period: isClock && samples > 0 ? all / samples : 0 };
}

/** The rate of a weight in at most `columns` bins. */
export function rates(data: Data, profile: Profile | null, state: State, slots: number, columns: number): Rates {
  const slot = data.slot ?? 1;
  const length = Math.max(1, data.length ?? 1);
  const { sums, period } = weights(profile, data.calls, slots, slot, state);
  // Where calls begin is known to a slot.
  const least = profile === null ? PERIODS * data.calls!.steps : Math.ceil((PERIODS * period) / slot);
  const step = Math.max(1, Math.ceil(slots / columns), Math.min(Math.ceil(slots / 20), least));
  const isTime = (profile?.unit ?? "ns") === "ns";
  const values = new Float64Array(Math.ceil(slots / step));
  sums.forEach((weight, at) => (values[Math.floor(at / step)]! += weight));
  values.forEach((weight, bin) => {
    // The last bin ends with the trace.
    const begin = bin * step * slot;
    const whole = step * slot;
    // Events at the very end are no rate of a moment.
    const least = isTime ? Math.min(slot, whole * 0.1) : whole / 2;
    const span = Math.max(Math.min(length, begin + whole) - begin, period, least, 1);
    values[bin] = isTime ? weight / span : (weight / span) * 1e9;
  });
  let most = values.reduce((a, b) => Math.max(a, b), 0);
  const host = cpus(data, profile?.trace);
  // No clock of a CPU runs on more CPUs than there are: what is above is when samples happened to come.
  if (isTime && profile !== null && !profile.is_off_cpu && host !== null) most = Math.min(most, host);
  const unit = profile === null ? "calls at a time" : profile.is_off_cpu ? "threads" : isTime ? "CPUs" : `${profile.unit}/s`;
  return { values, step, unit, most: Math.max(most, 1e-9) };
}

/** How counts become steps of heat: on a busy host, the lowest ones are the ground from which others differ. */
export interface Heat {
  low: number;
  high: number;
  /** Index of a color for a count above 0. */
  step: (count: number) => number;
}

export function heat(counts: Float64Array, steps: number): Heat {
  const known = counts.filter((count) => count > 0).sort();
  const at = (share: number) => known[Math.min(known.length - 1, Math.floor(known.length * share))] ?? 1;
  // A few cells at the ends do not take the contrast from all others, unless these are alike.
  let [lower, high] = [at(0.02), at(0.995)];
  if (lower === high) [lower, high] = [at(0), at(1)];
  if (lower === high) return { low: 0, high, step: () => Math.floor(steps / 2) };
  const isNarrow = lower > high / 8;
  const low = isNarrow ? lower : 0;
  const place = (count: number) => isNarrow ? (count - low) / (high - low) : Math.log2(count + 1) / Math.log2(high + 1);
  return { low, high, step: (count) => Math.max(0, Math.min(steps - 1, Math.floor(place(count) * (steps - 0.001)))) };
}
