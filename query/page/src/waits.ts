// What is known of one stretch of a thread: its state, its waker, and the stack with which the thread left its CPU.

import { type Data, type Profile, traceOf } from "./data.ts";

/** The boxes of states in the profile of the time off the CPU. */
const BOXES: Record<string, string> = { interruptible: "sleeping", uninterruptible: "blocked" };
/** Functions of the scheduler itself, in which every thread waits. */
export const SCHEDULER = /^(_*schedule($|_)|__switch_to|io_schedule|preempt_schedule|__cond_resched|.*schedule_timeout|.*schedule_hrtimeout)/;

export interface Wait {
  /** Innermost frame first. */
  frames: string[];
  /** The innermost function outside of the scheduler. */
  reason: string | null;
  waker: string | null;
  /** Other stacks that the stretch may have, since several periods began in its slot. */
  others: number;
}

export function offCpu(data: Data, thread: number): Profile | null {
  return data.profiles.find((profile) => profile.is_off_cpu && profile.cells !== null && (profile.trace ?? 0) === traceOf(data, thread)) ?? null;
}

/** The stack of a period off the CPU, from the cells of its slots; null if the page has none. */
export function waitOf(data: Data, thread: number, state: string, begin: number, end: number): Wait | null {
  const profile = offCpu(data, thread);
  const cells = profile?.cells;
  if (profile == null || cells == null) return null;
  const slot = data.slot ?? 1;
  const [first, last] = [Math.floor(begin / slot), Math.floor(end / slot)];
  const whole = last - first - 1;
  const box = BOXES[state] ?? state;
  let found: { node: number; distance: number }[] = [];
  for (let index = 0; index < cells.slot.length; index++) {
    if (cells.thread[index] !== thread) continue;
    const [at, bar, weight] = [cells.slot[index]!, cells.bar[index]!, cells.weight[index]!];
    const node = cells.node[index]!;
    if (bar > 0) {
      // A wait of whole slots has a cell for itself; a wait before a run-queue delay is longer than the state alone.
      if (whole > 0 && at <= first + 1 && at + bar >= last) found.push({ node, distance: Math.abs(at - first - 1) + Math.abs(at + bar - last) - 1e9 });
    } else if (at === first) {
      const inSlot = Math.min(end, (first + 1) * slot) - begin;
      if (weight >= inSlot) found.push({ node, distance: weight - inSlot });
    }
  }
  const path = (node: number) => {
    const labels: (readonly [string, number])[] = [];
    for (let at = node; at > 0; at = profile.parent[at]!) {
      const label = profile.labels[profile.label[at]!]!;
      labels.push([label[0], label[1]]);
    }
    return labels;
  };
  const isOfState = (node: number) => path(node).some(([name, kind]) => kind === 0 && name === box);
  found = found.filter(({ node }) => isOfState(node)).sort((a, b) => a.distance - b.distance);
  const [best] = found;
  if (best === undefined) return null;
  const labels = path(best.node);
  const frames = labels.filter(([, kind]) => kind !== 0).map(([name]) => name);
  const waker = labels.find(([name, kind]) => kind === 0 && name.startsWith("woken by "))?.[0].slice("woken by ".length) ?? null;
  const reason = frames.find((name) => !SCHEDULER.test(name)) ?? null;
  return { frames, reason, waker, others: new Set(found.filter(({ distance }) => distance === best.distance).map(({ node }) => node)).size - 1 };
}
