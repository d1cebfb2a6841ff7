// The report page: unpacks its data, makes the panels, and keeps them in step with the selection.

import { type Data, type Trace, read } from "./data.ts";
import { Tip, button, make } from "./dom.ts";
import { Findings } from "./findings.ts";
import { Flame } from "./flame.ts";
import { grouped } from "./format.ts";
import { Stacks } from "./stacks.ts";
import { State } from "./state.ts";
import { Durations, Functions, Slowest, Threads } from "./tables.ts";
import { Time } from "./time.ts";
import { Tracks } from "./tracks.ts";

interface Shown {
  element: HTMLElement;
  update: () => void;
  /** Shows where the picture of stacks is zoomed, and nothing else has changed. */
  zoomed?: () => void;
  /** Whether it shows times within a slot. */
  hasSpan?: boolean;
}

function traceHead(trace: Trace, isOne: boolean): HTMLElement {
  const fact = (name: string) => trace.facts.find(([key]) => key === name)?.[1];
  const host = ["hostname", "host", "os_release", "arch", "cpu_model", "cpus"].map(fact).filter((text) => text !== undefined);
  const lines: (HTMLElement | null)[] = [
    isOne ? null : make("h3", {}, trace.name),
    make("p", {}, [trace.recorded, ...host].filter((text) => text !== null).join(" · ")),
  ];
  const command = fact("command_line");
  if (command !== undefined) lines.push(make("p", {}, make("code", {}, command)));
  const counted = (name: string, pairs: [string, number | null][]) => {
    if (pairs.length === 0) return;
    const all = pairs.map(([reason, count]) => `${count === null ? "some" : grouped(count)} ${reason}`).join("; ");
    lines.push(make("p", { class: "bad" }, `${name}: ${all}`));
  };
  counted("Lost", trace.losses);
  counted("Not readable", trace.problems);
  if (trace.incomplete !== null) lines.push(make("p", { class: "bad" }, trace.incomplete));
  lines.push(make("details", {}, make("summary", {}, "All facts"), make("pre", {}, trace.info)));
  return make("div", { class: "trace" }, ...lines);
}

function head(data: Data): HTMLElement {
  const theme = button("light / dark", "Switch between light and dark", () => {
    const root = document.documentElement;
    const isDark = root.dataset["theme"] === "dark" || (root.dataset["theme"] === undefined && matchMedia("(prefers-color-scheme: dark)").matches);
    root.dataset["theme"] = isDark ? "light" : "dark";
    window.dispatchEvent(new Event("resize"));
  });
  const parts: (HTMLElement | null)[] = [
    make("header", {}, make("h1", {}, data.title), make("div", { class: "tools" }, theme, button("print", "Print the page", () => print()))),
    ...data.traces.map((trace) => traceHead(trace, data.traces.length === 1)),
    data.condition === null ? null : make("p", {}, `Only: ${data.condition}`),
  ];
  if (data.omitted.length > 0) parts.push(make("p", {}, `Left out: ${data.omitted.join("; ")}`));
  return make("section", { id: "head" }, ...parts);
}

/** The selection in words, the search, and how to leave both. */
function toolbar(state: State): Shown {
  const search = make("input", { type: "search", placeholder: "Search: /", "aria-label": "Search functions; a regular expression" });
  search.addEventListener("input", () => state.change({ query: search.value }));
  const words = make("span", { class: "selection", "aria-live": "polite" });
  const clear = button("clear", "Select everything (0)", () => state.change({ time: null, threads: new Set() }));
  const element = make("div", { id: "bar" }, words, clear, search);
  return {
    element,
    update: () => {
      const { threads, query } = state.selection;
      if (search.value !== query) search.value = query;
      const names = [...threads].slice(0, 3).map((index) => {
        const [tid, , comm] = state.data.threads[index]!;
        return `${comm ?? "[unknown]"} (${tid})`;
      });
      const more = threads.size > 3 ? [`${threads.size - 3} more`] : [];
      const time = state.timeText();
      words.textContent = state.data.slot === undefined ? "Two traces: their clocks differ, so that neither time nor threads are selected"
        : `${time ?? "all time"} · ${threads.size === 0 ? "all threads" : [...names, ...more].join(", ")}`;
      clear.hidden = time === null && threads.size === 0;
    },
  };
}

function keys(state: State): void {
  window.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const search = document.querySelector<HTMLInputElement>("#bar input")!;
    const isInside = document.activeElement === search;
    if (event.key === "/" && !isInside) {
      event.preventDefault();
      search.focus();
      search.select();
    } else if (event.key === "Escape") {
      if (state.selection.query !== "") state.change({ query: "" });
      else if (isInside) search.blur();
      else if (state.selection.zoom > 0) state.change({ zoom: 0 });
      else if (state.selection.span !== null) state.change({ span: null });
      else state.change({ time: null, threads: new Set() });
    } else if (event.key === "0" && !isInside) {
      state.change({ time: null, threads: new Set(), zoom: 0 });
    } else if (event.key === "Enter" && isInside) {
      search.blur();
    }
  });
}

async function main(): Promise<void> {
  const page = document.getElementById("page")!;
  const source = document.getElementById("data")!;
  const data = await read(source.textContent ?? "");
  source.remove();
  const state = new State(data);
  const tip = new Tip();
  const stacks = data.profiles.map((profile) => new Stacks(profile));
  const shown: Shown[] = [new Findings(data, state, stacks), toolbar(state)];
  const hasTime = data.slot !== undefined && 
    [...data.profiles.map((profile) => profile.cells), data.calls?.cells].some((cells) => cells?.slot.some((slot) => slot >= 0) ?? false);
  if (hasTime) shown.push(new Time(data, state, tip));
  if (Tracks.has(data)) shown.push(new Tracks(data, state, tip));
  if (data.threads.some(([tid]) => tid >= 0)) shown.push(new Threads(data, state));
  if (data.profiles.length > 0) shown.push(new Flame(data, state, stacks, tip), new Functions(data, state, stacks));
  if (data.calls !== null) shown.push(new Durations(data.calls, data, state, tip), new Slowest(data.calls, data, state));
  const about = make("footer", {}, `perfquet-query ${data.version} · keys: / search, Esc back, 0 everything; in pictures: arrows, Enter, o callers`);
  const empty = shown.length === 2 ? [make("p", { class: "note" }, "The trace has neither stacks nor calls to draw.")] : [];
  page.append(head(data), ...shown.map((one) => one.element), ...empty, about, tip.element);
  const update = () => { for (const one of shown) one.update(); };
  let [last, lastZoom, lastSpan] = ["", "", ""];
  state.onChange(() => {
    const { time, span, threads, query, profile, view, focus, zoom } = state.selection;
    const now = JSON.stringify([time, [...threads], query, profile, view, focus]);
    const [nowZoom, nowSpan] = [String(zoom), JSON.stringify(span)];
    for (const one of shown) {
      if (now !== last || (one.hasSpan === true && nowSpan !== lastSpan)) one.update();
      else if (nowZoom !== lastZoom) one.zoomed?.();
    }
    [last, lastZoom, lastSpan] = [now, nowZoom, nowSpan];
  });
  keys(state);
  let pending = 0;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(update);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", update);
  // Paper is light.
  const root = document.documentElement;
  let theme: string | undefined;
  const light = () => {
    theme = root.dataset["theme"];
    root.dataset["theme"] = "light";
    update();
  };
  window.addEventListener("beforeprint", light);
  window.addEventListener("afterprint", () => {
    if (theme === undefined) delete root.dataset["theme"];
    else root.dataset["theme"] = theme;
    update();
  });
  update();
  // Milliseconds until everything was drawn, for tests.
  document.documentElement.dataset["drawn"] = performance.now().toFixed(0);
}

main().catch((error: unknown) => {
  document.getElementById("page")!.append(make("p", { class: "bad" }, `This page cannot be shown: ${String(error)}`));
});
