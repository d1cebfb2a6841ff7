// What stands out in the whole trace, in lines that select it in the panels.

import { type Data, type FindingRow, isIdleThread } from "./data.ts";
import { button, copied, make, panel } from "./dom.ts";
import { amount, cut, duration, grouped, percent } from "./format.ts";
import type { Stacks } from "./stacks.ts";
import { exactTime, type State } from "./state.ts";

interface Finding {
  text: string;
  show: () => void;
}

/** A thread with less of the weight is one of many. */
const LEADING = 0.3;
/** So is a function. */
const LEADING_FUNCTION = 0.1;
/** With fewer items, every stretch of time differs from the others. */
const FEWEST = 50;
/** Shorter stretches without samples are no finding: share of the trace. */
const GAP = 0.02;

export class Findings {
  readonly element: HTMLElement;

  constructor(private readonly data: Data, private readonly state: State, stacks: Stacks[]) {
    const { element, body } = panel("findings", "Findings");
    const rows = data.findings ?? [];
    // The command's findings, and what selects something in the panels.
    const findings = data.findings == null ? [...this.ofTime(), ...this.ofStacks(stacks), ...this.ofCalls()] : this.ofTime();
    body.append(make("ul", {}, ...rows.map((row) => this.line(row)), ...findings.map(({ text, show }) => make("li", {}, button(text, "Show it", show)))));
    element.hidden = findings.length + rows.length === 0;
    this.element = element;
  }

  update(): void {}

  /** A line of the command, with the query that goes on from it. */
  private line({ severity, title, detail, why, sql, trace }: FindingRow): HTMLElement {
    const more = [detail, why].filter((text): text is string => text != null && text !== "");
    const copy = sql == null || sql === "" ? null : button("Copy query", sql, () => copied(this.state.command(["sql", sql], { time: false, threads: false, trace }), () => {
      copy!.textContent = "Copied";
      setTimeout(() => (copy!.textContent = "Copy query"), 1200);
    }));
    return make("li", severity === "warning" ? { class: "warning" } : {}, make("span", { class: "finding" }, title),
      more.length === 0 ? null : make("span", { class: "quiet" }, ` ${more.join(" · ")} `), copy);
  }

  private selectSlots(from: number, to: number): () => void {
    return () => this.state.change({ time: [from, to], threads: new Set() });
  }

  private ofTime(): Finding[] {
    const profile = this.data.profiles.find((one) => one.cells !== null);
    const [slot, column] = [this.data.slot ?? 1, this.data.column ?? 1];
    if (profile === undefined) return [];
    const slots = Math.floor((this.data.length ?? 1) / slot) + 1;
    const [weights, isSeen] = [new Float64Array(slots), new Uint8Array(slots)];
    const threads = new Map<number, number>();
    const { slot: times, thread, weight } = profile.cells!;
    let all = 0;
    const { bar } = profile.cells!;
    const isIdle = this.data.threads.map((one) => isIdleThread(one));
    times.forEach((time, index) => {
      const spans = profile.is_off_cpu ? Math.max(1, bar[index]!) : 1;
      for (let at = Math.max(0, time); at < Math.min(slots, time + spans); at++) {
        isSeen[at] = 1;
        if (!isIdle[thread[index]!]) weights[at]! += weight[index]! / spans;
      }
      // The time of an idle CPU is no use of it.
      if (isIdle[thread[index]!]) return;
      threads.set(thread[index]!, (threads.get(thread[index]!) ?? 0) + weight[index]!);
      all += weight[index]!;
    });
    const findings: Finding[] = [];
    // The column of the grid with the most weight, at any slot.
    const wide = Math.max(1, Math.round(column / slot));
    let [sum, most, at, gap, gapEnd, empty] = [0, 0, 0, 0, 0, 0];
    for (let time = 0; time < slots; time++) {
      sum += weights[time]! - (time >= wide ? weights[time - wide]! : 0);
      if (sum > most) [most, at] = [sum, Math.max(0, time - wide + 1)];
      empty = isSeen[time] === 0 ? empty + 1 : 0;
      if (empty > gap) [gap, gapEnd] = [empty, time + 1];
    }
    // A stretch that is as busy as the others is no finding.
    const usual = all / Math.max(1, slots / wide);
    const isMany = times.length >= FEWEST;
    if (isMany && most > 1.5 * usual && slots > 2 * wide && !profile.is_off_cpu) {
      findings.push({
        text: `The busiest ${duration(wide * slot).replace(/\.0+ /, " ")} begin at ${exactTime(at * slot)}: ${amount(most, profile.unit)} of ${profile.name}, ${percent(most, all)}`,
        show: this.selectSlots(at, at + wide),
      });
    }
    // Of several traces, one may begin later or end earlier than the page.
    const isOutside = this.data.traces.length > 1 && (gapEnd === slots || gapEnd === gap);
    if (isMany && gap > slots * GAP && gap < slots && !profile.is_off_cpu && !isOutside) {
      // A loss is told at its end, or when the next event was recorded.
      const isLost = (this.data.losses ?? []).some((slot) => slot >= gapEnd - gap - 1 && slot <= gapEnd);
      findings.push({
        text: `${isLost ? "Events were lost: nothing" : "Nothing"} of ${profile.name} from ${exactTime((gapEnd - gap) * slot)} to ${exactTime(gapEnd * slot)}, the longest such stretch`,
        show: this.selectSlots(gapEnd - gap, gapEnd),
      });
    }
    const [heaviest] = [...threads].sort((a, b) => b[1] - a[1]);
    if (heaviest !== undefined && threads.size > 1 && !profile.is_off_cpu && heaviest[1] > LEADING * all) {
      const [tid, , comm] = this.data.threads[heaviest[0]]!;
      findings.push({
        text: `${comm ?? "[unknown]"} (${tid}) is the thread with the most ${profile.name}: ${percent(heaviest[1], all)}`,
        show: () => this.state.change({ threads: new Set([heaviest[0]]), time: null }),
      });
    }
    // The command's findings count them.
    const lost = this.data.findings == null ? this.data.losses?.[0] : undefined;
    if (lost !== undefined) {
      findings.push({ text: `Events were lost, first at ${exactTime(lost * slot)}: the sums around there are too low`, show: this.selectSlots(lost, lost + 1) });
    }
    return findings;
  }

  private ofStacks(stacks: Stacks[]): Finding[] {
    const first = stacks[0];
    if (first === undefined) return [];
    const { boxes } = first.withoutIdle(this.data.threads);
    const lines = first.functions(boxes).filter((line) => line.group > 0 && line.name !== "[light frames]");
    const sandwich = (focus: string) => () => this.state.change({ profile: 0, view: "sandwich", focus, zoom: 0 });
    const [all, before] = [boxes.total[0]!, boxes.before?.[0] ?? 0];
    const compared = this.data.changes?.find((change) => change.key === "function");
    if (boxes.before !== null && compared !== undefined) {
      const text = (value: unknown) => (typeof value === "number" ? amount(Math.round(value), compared.unit ?? "") : "nothing");
      const size = (row: (typeof compared.rows)[number]) => Math.abs(Number(row["change"] ?? 0));
      return compared.rows.filter((row) => row["significant"] === true).sort((a, b) => size(b) - size(a)).slice(0, 5).map((row) => ({
        text: `${cut(String(row["function"]), 80)}: ${text(row["before"])} before, ${text(row["after"])} after`, show: sandwich(String(row["function"])),
      }));
    }
    if (boxes.before !== null) {
      const change = (line: (typeof lines)[number]) => line.own / Math.max(1, all) - line.ownBefore / Math.max(1, before);
      const isClear = (line: (typeof lines)[number]) => !first.isNoise(line.own / Math.max(1, all), line.ownBefore / Math.max(1, before));
      return lines.filter((line) => Math.abs(change(line)) > 0.005 && isClear(line))
        .sort((a, b) => Math.abs(change(b)) - Math.abs(change(a))).slice(0, 5)
        .map((line) => ({
          text: `${cut(line.name, 80)}: ${percent(line.ownBefore, before)} before, ${percent(line.own, all)} after`, show: sandwich(line.name),
        }));
    }
    const [hottest] = [...lines].sort((a, b) => b.own - a.own);
    return hottest === undefined || hottest.own < LEADING_FUNCTION * all || all === 0 ? [] : [{
      text: `${cut(hottest.name, 80)} has the most ${first.profile.name} of its own: ${percent(hottest.own, all)}`, show: sandwich(hottest.name),
    }];
  }

  private ofCalls(): Finding[] {
    const { calls, slot } = this.data;
    if (calls === null) return [];
    const findings: Finding[] = [];
    const [slowest] = calls.slowest;
    if (slowest !== undefined && slowest.time !== null && slot !== undefined) {
      const [from, to] = [Math.floor(slowest.time / slot), Math.ceil((slowest.time + slowest.duration) / slot)];
      findings.push({
        text: `The longest call is ${cut(slowest.function, 80)} of ${slowest.comm ?? "[unknown]"}: ${duration(slowest.duration)} at ${exactTime(from * slot)}`,
        show: this.selectSlots(Math.max(0, from), Math.max(from + 1, to)),
      });
    }
    const spread = calls.rows.filter((row) => row.count >= 100 && row.p50 !== null && row.p50 > 0 && row.p99 !== null)
      .sort((a, b) => b.p99! / b.p50! - a.p99! / a.p50!)[0];
    if (spread !== undefined && spread.p99! > 10 * spread.p50!) {
      findings.push({
        text: `${cut(spread.function, 80)} varies most: half of ${grouped(spread.count)} calls take up to ${duration(spread.p50!)}, 1% take ${duration(spread.p99!)} or more`,
        show: () => {
          this.state.change({ query: `^${spread.function.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$` });
          document.getElementById("durations")?.scrollIntoView();
        },
      });
    }
    return findings;
  }
}
