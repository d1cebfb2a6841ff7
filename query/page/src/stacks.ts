// Sums over the stacks of a profile.

import { type Data, isIdleThread, type Label, type Profile } from "./data.ts";
import { grouped } from "./format.ts";
import type { Selection, State } from "./state.ts";
import { SCHEDULER } from "./waits.ts";

/** A note where a selection of times or threads changes nothing, since the stacks have neither. */
export function wholeTrace(profile: Profile, selection: Selection): string[] {
  const hasSelection = selection.time !== null || selection.threads.size > 0;
  return profile.cells === null && profile.kind !== "difference" && hasSelection ? ["the whole trace: these stacks have neither time nor thread"] : [];
}

/** Boxes to draw: node 0 is the root, parents precede their children. */
export interface Boxes {
  parent: Int32Array;
  /** Index of the label; -1 for the root. */
  label: Int32Array;
  own: Float64Array;
  total: Float64Array;
  /** Weights of the trace or the time before; null if nothing is compared. */
  ownBefore: Float64Array | null;
  before: Float64Array | null;
  /** Children of each node in the order in which they are drawn. */
  children: Children;
}

/** Boxes in the order of time, with the slots of each. */
export interface TimedBoxes extends Boxes {
  /** Boxes labeled {@link BLANK} are times of their callers alone. */
  from: Int32Array;
  to: Int32Array;
}

/** A function in all of its stacks. */
export interface FunctionLine {
  name: string;
  module: string | null;
  group: number;
  own: number;
  total: number;
  ownBefore: number;
  totalBefore: number;
}

/** The share of a cell that is selected: of its first slot, its number of slots, and its thread. */
type Share = (slot: number, slots: number, thread: number) => number;

/** Label of a box that is not drawn. */
export const BLANK = -2;

const GROUP = 0;
const INCOMPLETE = 1;
const KERNEL = 2;

/** The children of a node, sorted if that matters. */
export type Children = (node: number, inOrder?: boolean) => Int32Array;

/** The children of every node, by an order of siblings, or as they come. */
export function childLists(parent: Int32Array, order: ((a: number, b: number) => number) | null): Children {
  const starts = new Int32Array(parent.length + 1);
  for (let node = 1; node < parent.length; node++) starts[parent[node]! + 1]!++;
  for (let node = 0; node < parent.length; node++) starts[node + 1]! += starts[node]!;
  const next = starts.slice();
  const all = new Int32Array(Math.max(0, parent.length - 1));
  for (let node = 1; node < parent.length; node++) all[next[parent[node]!]!++] = node;
  // Most nodes are never drawn: siblings are sorted when they are.
  const isSorted = new Uint8Array(parent.length);
  return (node, inOrder = true) => {
    const siblings = all.subarray(starts[node], starts[node + 1]);
    if (order !== null && inOrder && isSorted[node] === 0) {
      isSorted[node] = 1;
      siblings.sort(order);
    }
    return siblings;
  };
}

function sums(parent: Int32Array, own: Float64Array): Float64Array {
  const total = own.slice();
  for (let node = total.length - 1; node > 0; node--) total[parent[node]!]! += total[node]!;
  return total;
}

export class Stacks {
  /** Function of each label: an index of `names`. */
  private readonly group: Int32Array;
  private readonly names: { name: string; module: string | null }[] = [{ name: "[no stack]", module: null }];
  private readonly children: Children;
  /** Of time off the CPU, where each stack waits: its innermost function outside of the scheduler, in which all of them end. */
  private readonly places: Int32Array | null;
  private inOrder: Int32Array | null = null;
  private last: { key: string; boxes: Boxes; samples: number; functions?: FunctionLine[] } | null = null;
  private lastFolded: { of: Boxes; boxes: Boxes } | null = null;
  private all: { boxes: Boxes; samples: number; functions?: FunctionLine[] } | null = null;
  private busy: { boxes: Boxes; samples: number; idle: number } | null = null;

  constructor(readonly profile: Profile) {
    const known = new Map<string, number>();
    const group = (name: string, module: string | null, isKernel: boolean) => {
      const key = `${isKernel}\0${module}\0${name}`;
      const index = known.get(key) ?? this.names.push({ name, module }) - 1;
      known.set(key, index);
      return index;
    };
    this.group = Int32Array.from(profile.labels, ([name, kind, module]) => {
      if (kind === GROUP) return 0;
      return kind === INCOMPLETE ? group("[unknown]", null, false)
        : group(name, module === null ? null : profile.modules[module]!, kind === KERNEL);
    });
    this.places = profile.is_off_cpu ? this.waits() : null;
    // The nodes of a page are in the order in which they are drawn.
    this.children = childLists(profile.parent, null);
  }

  /** Whether there is anything but the sum of all: frames, or states of threads off the CPU. */
  get hasBoxes(): boolean {
    return this.profile.parent.length > 1;
  }

  private waits(): Int32Array {
    const { parent, label, labels } = this.profile;
    const isScheduler = labels.map(([name, kind]) => kind === KERNEL && SCHEDULER.test(name));
    const isFrame = labels.map(([, kind]) => kind > INCOMPLETE);
    const places = new Int32Array(parent.length);
    for (let node = 1; node < places.length; node++) {
      const caller = parent[node]!;
      // A stack of nothing else stays what it is.
      const hasCaller = caller > 0 && isFrame[label[places[caller]!]!] === true && !isScheduler[label[places[caller]!]!];
      places[node] = isScheduler[label[node]!] && hasCaller ? places[caller]! : node;
    }
    return places;
  }

  /** The cells in the order of time. */
  private cellsInTime(): Int32Array {
    if (this.inOrder !== null) return this.inOrder;
    const slot = this.profile.cells?.slot ?? new Int32Array();
    const starts = new Int32Array(slot.reduce((most, one) => Math.max(most, one), 0) + 3);
    for (const one of slot) starts[one + 2]!++;
    for (let index = 1; index < starts.length; index++) starts[index]! += starts[index - 1]!;
    const order = new Int32Array(slot.length);
    slot.forEach((one, index) => (order[starts[one + 1]!++] = index));
    return (this.inOrder = order);
  }

  private ownWeights(share: (slot: number, slots: number, thread: number) => number): { own: Float64Array; samples: number } {
    const { cells } = this.profile;
    if (cells === null) return { own: this.ownOfAll(), samples: 0 };
    const weights = new Float64Array(this.profile.parent.length);
    let samples = 0;
    const { slot, thread, node, weight, count } = cells;
    const slots = this.profile.is_off_cpu ? cells.bar : null;
    for (let index = 0; index < slot.length; index++) {
      const part = share(slot[index]!, slots === null ? 1 : slots[index]!, thread[index]!);
      if (part === 0) continue;
      const place = this.places === null ? node[index]! : this.places[node[index]!]!;
      weights[place]! += part === 1 ? weight[index]! : weight[index]! * part;
      samples += count[index]!;
    }
    return { own: weights, samples };
  }

  private ownOfAll(): Float64Array {
    const { own } = this.profile;
    if (this.places === null) return own!;
    const weights = new Float64Array(own!.length);
    own!.forEach((weight, node) => (weights[this.places![node]!]! += weight));
    return weights;
  }

  /** The boxes of the selection, and the number of its samples. */
  selected(state: State): { boxes: Boxes; samples: number } {
    const { time, base, threads } = state.selection;
    if (time === null && threads.size === 0 && base === null) return this.whole();
    const key = JSON.stringify([time, base, [...threads]]);
    if (this.last?.key !== key) this.last = { key, ...this.boxes(state.share(), base === null ? null : state.share(base)) };
    return this.last;
  }

  /** The note on the incomplete stacks of the selection. */
  incomplete(state: State): string[] {
    const { cells, incomplete, parent, label, labels } = this.profile;
    if (incomplete === undefined || incomplete === null) return [];
    const { time, threads } = state.selection;
    if (cells === null || (time === null && threads.size === 0)) return [incomplete[0]];
    const isCut = new Uint8Array(parent.length);
    for (let node = 1; node < parent.length; node++) isCut[node] = isCut[parent[node]!]! | Number(labels[label[node]!]![1] === INCOMPLETE);
    const share = state.share();
    let [all, cut] = [0, 0];
    for (let index = 0; index < cells.slot.length; index++) {
      if (share(cells.slot[index]!, 1, cells.thread[index]!) === 0) continue;
      all += cells.count[index]!;
      cut += isCut[cells.node[index]!]! * cells.count[index]!;
    }
    if (cut === 0) return [];
    const percents = (cut / all) * 100;
    return [`${grouped(cut)} of ${grouped(all)} stacks (${percents < 0.5 ? "<1" : percents.toFixed(0)}%) lack their outer frames; ${incomplete[1]}`];
  }

  /** The boxes of the whole trace. */
  whole(): { boxes: Boxes; samples: number } {
    return (this.all ??= this.boxes(() => 1, null));
  }

  /** The boxes of the whole trace without the threads that stand for an idle CPU, and the weight of those. */
  withoutIdle(threads: Data["threads"]): { boxes: Boxes; samples: number; idle: number } {
    if (this.busy !== null) return this.busy;
    const whole = this.whole();
    const isIdle = threads.map((thread) => isIdleThread(thread));
    const { cells, is_off_cpu: isOffCpu } = this.profile;
    if (cells === null || isOffCpu || !cells.thread.some((thread) => isIdle[thread])) return (this.busy = { ...whole, idle: 0 });
    const busy = this.boxes((_slot, _slots, thread) => (isIdle[thread] ? 0 : 1), null);
    return (this.busy = { ...busy, idle: whole.boxes.total[0]! - busy.boxes.total[0]! });
  }

  /** The boxes of the cells that are wanted. */
  private boxes(share: Share, baseShare: Share | null): { boxes: Boxes; samples: number } {
    const { own, samples } = this.ownWeights(share);
    const { parent, label, cells } = this.profile;
    const total = sums(parent, own);
    let ownBefore = this.profile.before;
    if (baseShare !== null && cells !== null) {
      const base = this.ownWeights(baseShare);
      ownBefore = base.own;
      this.profile.samples = [samples, base.samples];
    }
    const before = ownBefore === null ? null : sums(parent, ownBefore);
    return { boxes: { parent, label, own, total, ownBefore, before, children: this.children }, samples };
  }

  /** The boxes with each function that calls itself as one. */
  folded(boxes: Boxes): Boxes {
    if (this.lastFolded?.of === boxes) return this.lastFolded.boxes;
    const parent = [0], label = [-1], own = [boxes.own[0]!], before = [boxes.ownBefore?.[0] ?? 0];
    const places = new Int32Array(boxes.parent.length);
    const known = new Map<number, number>();
    for (let node = 1; node < places.length; node++) {
      const [at, name] = [places[boxes.parent[node]!]!, boxes.label[node]!];
      let place = label[at] === name ? at : known.get(at * this.profile.labels.length + name);
      if (place === undefined) {
        place = parent.push(at) - 1;
        label.push(name);
        own.push(0);
        before.push(0);
        known.set(at * this.profile.labels.length + name, place);
      }
      places[node] = place;
      own[place]! += boxes.own[node]!;
      before[place]! += boxes.ownBefore?.[node] ?? 0;
    }
    const [parents, weights] = [Int32Array.from(parent), Float64Array.from(own)];
    const ownBefore = boxes.ownBefore === null ? null : Float64Array.from(before);
    const folded: Boxes = {
      parent: parents, label: Int32Array.from(label), own: weights, total: sums(parents, weights), ownBefore,
      before: ownBefore === null ? null : sums(parents, ownBefore), children: childLists(parents, null),
    };
    this.lastFolded = { of: boxes, boxes: folded };
    return folded;
  }

  /** Whether two shares differ by less than 1.96 standard errors. */
  isNoise(now: number, before: number): boolean {
    const samples = this.profile.samples;
    if (samples === null) return false;
    const [count, then] = [Math.max(1, samples[0]), Math.max(1, samples[1])];
    const pooled = (now * count + before * then) / (count + then);
    return Math.abs(now - before) < 1.96 * Math.sqrt(Math.max(0, pooled * (1 - pooled) * (1 / count + 1 / then)));
  }

  /** The number of levels of the deepest stack. */
  depth(): number {
    const { parent } = this.profile;
    const levels = new Int32Array(parent.length);
    let most = 0;
    for (let node = 1; node < parent.length; node++) most = Math.max(most, (levels[node] = levels[parent[node]!]! + 1));
    return most;
  }

  labelOf(node: number): Label | null {
    const label = this.profile.label[node]!;
    return label < 0 ? null : this.profile.labels[label]!;
  }

  /** All functions with a weight. Recursion counts once. */
  functions(boxes: Boxes): FunctionLine[] {
    const known = [this.all, this.last].find((known) => known?.boxes === boxes);
    return known == null ? this.functionsOf(boxes) : (known.functions ??= this.functionsOf(boxes));
  }

  private functionsOf(boxes: Boxes): FunctionLine[] {
    const { parent, label } = this.profile;
    const { own: owns, total: totals, ownBefore: ownBefores, before: totalsBefore } = boxes;
    const count = this.names.length;
    const [own, total, ownBefore, totalBefore] = Array.from({ length: 4 }, () => new Float64Array(count)) as [Float64Array, Float64Array, Float64Array, Float64Array];
    // By label and 1, since that of the root is -1.
    const groups = Int32Array.from([0, ...this.group]);
    const isFunction = Uint8Array.from([0, ...this.profile.labels.map(([, kind]) => Number(kind > INCOMPLETE))]);
    // Functions on the way from the root to a node; of recursive ones, the outermost counts.
    const onPath = new Int32Array(count);
    const path = new Int32Array(parent.length);
    let levels = 0;
    for (let node = 0; node < parent.length; node++) {
      const weight = totals[node]!;
      const then = totalsBefore === null ? 0 : totalsBefore[node]!;
      if (weight === 0 && then === 0) continue;
      while (levels > 0 && path[levels - 1] !== parent[node]) {
        const left = label[path[--levels]!]! + 1;
        if (isFunction[left] === 1) onPath[groups[left]!]!--;
      }
      path[levels++] = node;
      const at = label[node]! + 1;
      const group = groups[at]!;
      own[group]! += owns[node]!;
      if (ownBefores !== null) ownBefore[group]! += ownBefores[node]!;
      if (isFunction[at] === 0) {
        total[group]! += owns[node]!;
        if (ownBefores !== null) totalBefore[group]! += ownBefores[node]!;
      } else if (onPath[group]!++ === 0) {
        total[group]! += weight;
        totalBefore[group]! += then;
      }
    }
    const lines = this.names.map(({ name, module }, group): FunctionLine =>
      ({ name, module, group, own: own[group]!, total: total[group]!, ownBefore: ownBefore[group]!, totalBefore: totalBefore[group]! }));
    return lines.filter((line) => line.total > 0 || line.totalBefore > 0);
  }

  /** Share of the stacks with a function that matches. */
  matched(boxes: Boxes, expression: RegExp): number {
    const hits = this.profile.labels.map(([name, kind]) => kind > INCOMPLETE && expression.test(name));
    let weight = 0;
    const pending = [0];
    while (pending.length > 0) {
      const node = pending.pop()!;
      if (node > 0 && hits[this.profile.label[node]!]) weight += boxes.total[node]!;
      else if (boxes.total[node]! > 0) for (const child of this.children(node, false)) pending.push(child);
    }
    return weight;
  }

  /**
   * The selected stacks in the order of time: slots are joined to at most `columns`, stacks of a column are in the order of their
   * names, and equal frames side by side are one box. Boxes of less than `least` of the weight are part of their callers.
   */
  inTime(state: State, columns: number, least: number): TimedBoxes {
    const parent = [0], label = [-1], own = [0], width = [0], from = [0], to = [0];
    const { cells } = this.profile;
    const tree = this.profile.parent;
    const selected: number[] = [];
    let all = 0;
    const has = state.filter();
    for (const index of cells === null ? [] : this.cellsInTime()) {
      if (cells!.slot[index]! < 0 || cells!.weight[index]! === 0 || !has(cells!.slot[index]!, cells!.thread[index]!)) continue;
      selected.push(index);
      all += cells!.weight[index]!;
    }
    const [first, last] = [cells?.slot[selected[0] ?? 0] ?? 0, cells?.slot[selected[selected.length - 1] ?? 0] ?? 0];
    const step = Math.max(1, Math.ceil((last - first + 1) / columns));
    const totals = new Float64Array(tree.length);
    const owns = new Float64Array(tree.length);
    const children = new Map<number, number[]>();
    // Boxes that the next column may continue, by level.
    let open: number[] = [0];
    const add = (box: number, level: number, index: number, weight: number, begin: number, end: number) => {
      const next = parent.push(box) - 1;
      label.push(index);
      own.push(0);
      width.push(weight);
      from.push(begin);
      to.push(end);
      open = open.slice(0, level + 1);
      return next;
    };
    const emit = (node: number, box: number, level: number, begin: number, end: number) => {
      let alone = owns[node]!;
      own[box]! += alone;
      const below = children.get(node) ?? [];
      const before = open[level + 1];
      const isOpen = (child: number) => before !== undefined && parent[before] === box && label[before] === this.profile.label[child];
      // In the order of names, but what is open comes first, and the node alone second.
      const order = below.length < 2 ? below : [...this.children(node)].filter((child) => totals[child]! > 0);
      const small = order.filter((child) => totals[child]! < least * all);
      for (const child of small) alone += totals[child]!;
      const drawn = small.length === 0 ? order : order.filter((child) => totals[child]! >= least * all);
      const firstOpen = drawn.find(isOpen);
      const visit = (child: number) => {
        let next = open[level + 1];
        if (next === undefined || parent[next] !== box || label[next] !== this.profile.label[child]) {
          next = add(box, level, this.profile.label[child]!, 0, begin, end);
          open.push(next);
        }
        to[next] = end;
        emit(child, next, level + 1, begin, end);
      };
      if (firstOpen !== undefined) visit(firstOpen);
      if (alone > 0) add(box, level, BLANK, alone, begin, end);
      for (const child of drawn) if (child !== firstOpen) visit(child);
    };
    for (let at = 0; at < selected.length;) {
      const begin = first + Math.floor((cells!.slot[selected[at]!]! - first) / step) * step;
      const end = begin + step;
      const touched: number[] = [];
      for (; at < selected.length && cells!.slot[selected[at]!]! < end; at++) {
        const index = selected[at]!;
        const [leaf, weight] = [cells!.node[index]!, cells!.weight[index]!];
        owns[leaf]! += weight;
        for (let node = leaf; ; node = tree[node]!) {
          if (totals[node] === 0) {
            touched.push(node);
            const siblings = children.get(tree[node]!);
            if (node > 0 && siblings === undefined) children.set(tree[node]!, [node]);
            else if (node > 0) siblings!.push(node);
          }
          totals[node]! += weight;
          if (node === 0) break;
        }
      }
      emit(0, 0, 0, begin, Math.min(end, last + 1));
      for (const node of touched) totals[node] = owns[node] = 0;
      children.clear();
    }
    from[0] = first;
    to[0] = last + 1;
    const parents = Int32Array.from(parent);
    return {
      parent: parents, label: Int32Array.from(label), own: Float64Array.from(own), total: sums(parents, Float64Array.from(width)), ownBefore: null, before: null,
      from: Int32Array.from(from), to: Int32Array.from(to), children: childLists(parents, (a, b) => a - b),
    };
  }

  /** A function with all it calls, or with all its callers above it. */
  around(boxes: Boxes, name: string, callers: boolean): Boxes {
    const parent = [0], label = [-1], own = [0], before = [0];
    const known = new Map<number, number>();
    const child = (of: number, index: number) => {
      const key = of * this.profile.labels.length + index;
      let node = known.get(key);
      if (node === undefined) {
        node = parent.push(of) - 1;
        label.push(index);
        own.push(0);
        before.push(0);
        known.set(key, node);
      }
      return node;
    };
    const isIt = (node: number) => node > 0 && this.labelOf(node)![0] === name && this.labelOf(node)![1] > INCOMPLETE;
    const then = boxes.ownBefore;
    const visit = (node: number, place: number) => {
      // Below an occurrence: everything, with recursion.
      const pending: [number, number][] = [[node, place]];
      while (pending.length > 0) {
        const [from, to] = pending.pop()!;
        own[to]! += boxes.own[from]!;
        before[to]! += then?.[from] ?? 0;
        for (const next of this.children(from, false)) {
          if (boxes.total[next]! > 0 || (boxes.before?.[next] ?? 0) > 0) {
            pending.push([next, child(to, this.profile.label[next]!)]);
          }
        }
      }
    };
    const pending = [0];
    while (pending.length > 0) {
      const node = pending.pop()!;
      if (!isIt(node)) {
        if (boxes.total[node]! > 0 || (boxes.before?.[node] ?? 0) > 0) for (const next of this.children(node, false)) pending.push(next);
        continue;
      }
      const first = child(0, this.profile.label[node]!);
      if (!callers) {
        visit(node, first);
        continue;
      }
      let place = first;
      for (let up = boxes.parent[node]!; up > 0; up = boxes.parent[up]!) place = child(place, this.profile.label[up]!);
      own[place]! += boxes.total[node]!;
      before[place]! += boxes.before?.[node] ?? 0;
    }
    const parents = Int32Array.from(parent);
    const weights = Float64Array.from(own);
    const total = sums(parents, weights);
    return {
      parent: parents, label: Int32Array.from(label), own: weights, total,
      ownBefore: then === null ? null : Float64Array.from(before),
      before: then === null ? null : sums(parents, Float64Array.from(before)),
      children: childLists(parents, (a, b) => total[b]! - total[a]! || a - b),
    };
  }
}
