// Stacks as boxes on a canvas: flame graph, icicle, and a function between its callers and callees.

import type { Data, Label, Profile } from "./data.ts";
import { Canvas, Tip, button, color, commandLine, isDark, legendEntry, make, panel } from "./dom.ts";
import { amount, counted, cut, percent } from "./format.ts";
import { BLANK, type Boxes, type Stacks, type TimedBoxes } from "./stacks.ts";
import { exactTime, type State, VIEWS, type View } from "./state.ts";

const LEVEL = 18;
/** Narrower boxes are not drawn. */
const LEAST = 0.4;
/** Levels whose widest box is narrower are left out, above the first ones. */
const LEAST_LEVEL = 3;
const FIRST_LEVELS = 12;
const FONT = "12px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";
const SHADES = [1, 0.88, 0.76, 0.64];

interface Box {
  part: number;
  node: number;
  level: number;
  x: number;
  width: number;
}

/** A tree of the picture: its boxes, where it is, and whether it grows downwards. */
interface Part {
  boxes: Boxes;
  top: number;
  levels: number;
  down: boolean;
}

export class Flame {
  private readonly panel = panel("stacks", "Stacks");
  readonly element = this.panel.element;
  private readonly canvas = new Canvas("Stacks. Arrow keys move, Enter zooms, Escape goes back", 200);
  private readonly status = make("p", { class: "status", "aria-live": "polite" });
  private readonly legend = make("p", { class: "legend" });
  private readonly tabs = make("div", { class: "tabs", role: "group", "aria-label": "Event" });
  private readonly views = make("div", { class: "tabs", role: "group", "aria-label": "View" });
  private readonly command = commandLine(() => this.commandText());
  readonly hasZoom = true;
  private byModule = false;
  private lastTimed: { key: string; boxes: TimedBoxes } | null = null;
  private drawn: Box[] = [];
  private parts: Part[] = [];
  private cursor: { part: number; node: number } | null = null;
  private hits: boolean[] = [];
  /** Whether levels are left out, since all of their boxes are narrow. */
  private isCut = false;

  constructor(private readonly data: Data, private readonly state: State, private readonly stacks: Stacks[], private readonly tip: Tip) {
    const { body, tools } = this.panel;
    data.profiles.forEach((profile, index) => {
      this.tabs.append(button(profile.name, `Show ${profile.name}`, () => state.change({ profile: index, zoom: 0, focus: null })));
    });
    for (const view of VIEWS) {
      const titles = {
        flame: "Root at the bottom", icicle: "Root at the top", sandwich: "Callers and callees of one function",
        "time order": "Stacks from left to right in the order of time; select a thread",
      };
      this.views.append(button(view, titles[view], () => this.show(view)));
    }
    const module = button("by module", "Colors stand for modules", () => {
      this.byModule = !this.byModule;
      module.setAttribute("aria-pressed", String(this.byModule));
      this.draw();
    });
    tools.append(this.tabs, this.views, make("div", { class: "tabs" }, module));
    body.append(this.legend, this.canvas.element, this.status, this.command.element);
    this.listen();
  }

  private get profile(): Profile {
    return this.data.profiles[this.state.selection.profile]!;
  }

  private get stack(): Stacks {
    return this.stacks[this.state.selection.profile]!;
  }

  private show(view: View): void {
    const { focus } = this.state.selection;
    if (view !== "sandwich") {
      this.state.change({ view });
      return;
    }
    const { boxes } = this.stack.selected(this.state);
    const hottest = () => [...this.stack.functions(boxes)].sort((a, b) => b.own - a.own)[0]?.name ?? null;
    this.state.change({ view, focus: focus ?? hottest() });
  }

  /** The view; without times, stacks have no order of time. */
  private get view(): View {
    const { view } = this.state.selection;
    return view === "time order" && this.profile.cells === null ? "flame" : view;
  }

  /** The boxes in the order of time of the selection. */
  private timed(): TimedBoxes {
    const { time, threads, profile } = this.state.selection;
    const key = JSON.stringify([time, [...threads], profile, this.canvas.width]);
    if (this.lastTimed?.key !== key) {
      const columns = Math.max(20, Math.floor(this.canvas.width / 3));
      this.lastTimed = { key, boxes: this.stack.inTime(this.state, columns, LEAST / Math.max(1, this.canvas.width)) };
    }
    return this.lastTimed.boxes;
  }

  private commandText(): string {
    const { focus } = this.state.selection;
    const { view } = this;
    const more = view === "icicle" ? ["--icicle"] : view === "sandwich" ? ["--reverse"] : [];
    void focus;
    return this.state.command(this.profile.flamegraph, { more: [...more, "-o", "flame.svg"], time: this.profile.cells !== null });
  }

  private listen(): void {
    const { element } = this.canvas;
    element.addEventListener("mousemove", (event) => {
      const box = this.at(event);
      if (box === null) this.tip.hide();
      else this.tip.show(this.facts(box), event);
      element.style.cursor = box === null ? "default" : "pointer";
    });
    element.addEventListener("mouseleave", () => this.tip.hide());
    element.addEventListener("click", (event) => {
      const box = this.at(event);
      if (box === null) return;
      this.cursor = { part: box.part, node: box.node };
      this.enter(box.node, box.part);
    });
    element.addEventListener("keydown", (event) => this.key(event));
  }

  /** Zooms to a box; in the sandwich, its function becomes the middle; in the order of time, its time is selected. */
  private enter(node: number, part: number): void {
    const { zoom } = this.state.selection;
    const { view } = this;
    if (view === "time order") {
      const { from, to } = this.timed();
      this.cursor = null;
      this.state.change({ time: [from[node]!, to[node]!] });
      return;
    }
    if (view === "sandwich") {
      const label = this.labelIn(part, node);
      if (label !== null) this.state.change({ focus: label[0] });
      return;
    }
    this.state.change({ zoom: node === zoom ? this.profile.parent[node]! : node });
  }

  private key(event: KeyboardEvent): void {
    const { zoom, view } = this.state.selection;
    const at = this.drawn.find((box) => box.part === this.cursor?.part && box.node === this.cursor.node) ?? this.drawn[0];
    if (at === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    const part = this.parts[at.part]!;
    const same = this.drawn.filter((box) => box.part === at.part);
    const to = (box: Box | undefined) => {
      event.preventDefault();
      if (box === undefined) return;
      this.cursor = { part: box.part, node: box.node };
      this.status.textContent = this.facts(box).join(" · ");
      this.draw();
    };
    const outward = same.filter((box) => part.boxes.parent[box.node] === at.node && box.node !== 0);
    const siblings = same.filter((box) => box.level === at.level);
    const place = siblings.indexOf(at);
    const inwards = () => to(same.find((box) => at.node !== 0 && box.node === part.boxes.parent[at.node]));
    switch (event.key) {
      case "ArrowUp": part.down ? inwards() : to(outward.sort((a, b) => b.width - a.width)[0]); break;
      case "ArrowDown": part.down ? to(outward.sort((a, b) => b.width - a.width)[0]) : inwards(); break;
      case "ArrowLeft": to(siblings[place - 1]); break;
      case "ArrowRight": to(siblings[place + 1]); break;
      case "Enter": event.preventDefault(); this.enter(at.node, at.part); break;
      case "o": {
        const label = this.labelIn(at.part, at.node);
        if (label !== null) this.state.change({ view: "sandwich", focus: label[0] });
        break;
      }
      case "Escape":
        if (view === "sandwich") this.state.change({ view: "flame" });
        else if (zoom > 0) this.state.change({ zoom: this.profile.parent[zoom]! });
        else return;
        event.stopPropagation();
    }
  }

  private at(event: MouseEvent): Box | null {
    const [x, y] = this.canvas.place(event);
    const row = this.drawn.filter((box) => y >= this.y(box) && y < this.y(box) + LEVEL - 1);
    let [low, high] = [0, row.length - 1];
    while (low <= high) {
      const middle = (low + high) >> 1;
      const box = row[middle]!;
      if (x < box.x) high = middle - 1;
      else if (x >= box.x + box.width) low = middle + 1;
      else return box;
    }
    return null;
  }

  private y(box: Box): number {
    const part = this.parts[box.part]!;
    return part.top + (part.down ? box.level : part.levels - 1 - box.level) * LEVEL;
  }

  private labelIn(part: number, node: number): Label | null {
    const index = this.parts[part]!.boxes.label[node]!;
    return index < 0 ? null : this.profile.labels[index]!;
  }

  private facts(box: Box): string[] {
    const profile = this.profile;
    const { boxes } = this.parts[box.part]!;
    const root = this.stack.selected(this.state).boxes;
    const label = this.labelIn(box.part, box.node);
    const name = label?.[0] ?? "all";
    const lines = [name.length > 600 ? cut(name, 600) : name];
    if (label !== null) {
      const kind = this.data.colors.names[label[1]] ?? "";
      const module = label[2] === null ? null : profile.modules[label[2]]!;
      if (module !== null) lines.push(`${kind}: ${module}`);
      if (label[3] !== null) lines.push(label[3]);
    }
    const [total, all] = [boxes.total[box.node]!, root.total[0]!];
    lines.push(`${amount(total, profile.unit)}, ${percent(total, all)}`);
    if (this.view === "time order") {
      const { from, to } = this.timed();
      lines.push(`from ${exactTime(from[box.node]! * this.state.slot)} to ${exactTime(to[box.node]! * this.state.slot)}`);
    }
    const own = boxes.own[box.node]!;
    if (own > 0 && own < total && this.state.selection.view !== "sandwich") lines.push(`self ${amount(own, profile.unit)}, ${percent(own, all)}`);
    if (boxes.before !== null && root.before !== null) {
      const [then, allThen] = [boxes.before[box.node]!, root.before[0]!];
      const points = (total / Math.max(1, all) - then / Math.max(1, allThen)) * 100;
      lines.push(`before: ${amount(then, profile.unit)}, ${percent(then, allThen)}`);
      lines.push(`change: ${points > 0 ? "+" : ""}${points.toFixed(2)} percentage points${this.stack.isNoise(total / Math.max(1, all), then / Math.max(1, allThen)) ? ", within noise" : ""}`);
    }
    return lines;
  }

  update(): void {
    const { selection } = this.state;
    const press = (group: HTMLElement, chosen: number) =>
      [...group.children].forEach((child, index) => child.setAttribute("aria-pressed", String(index === chosen)));
    press(this.tabs, selection.profile);
    press(this.views, VIEWS.indexOf(this.view));
    const inTime = this.views.children[VIEWS.indexOf("time order")];
    if (inTime instanceof HTMLButtonElement) inTime.disabled = this.profile.cells === null;
    const { boxes, samples } = this.stack.selected(this.state);
    const profile = this.profile;
    const all = boxes.total[0]!;
    const text = profile.kind === "event"
      ? profile.is_count ? amount(all, profile.unit) : `${counted(samples, "sample")}, ${amount(all, profile.unit)}`
      : profile.subtitle ?? amount(all, profile.unit);
    const order = this.view === "time order" && selection.threads.size !== 1 && this.data.threads.length > 1
      ? ["threads that run at a time share the width: select one to see its order"] : [];
    const untimed = profile.cells === null && profile.kind !== "difference" && (selection.time !== null || selection.threads.size > 0)
      ? ["the whole trace: these stacks have neither time nor thread"] : [];
    this.panel.note.replaceChildren(...[text, ...profile.notes, ...order, ...untimed].map((line) => make("span", {}, line)));
    this.command.update();
    this.draw();
  }

  private layout(): void {
    const { selection } = this.state;
    const { boxes } = this.stack.selected(this.state);
    this.parts = [];
    this.drawn = [];
    this.isCut = false;
    const add = (tree: Boxes, zoom: number, down: boolean, top: number): number => {
      const part = { boxes: tree, top, levels: 0, down };
      this.parts.push(part);
      this.place(this.parts.length - 1, zoom);
      return top + part.levels * LEVEL;
    };
    if (selection.view === "sandwich" && selection.focus !== null) {
      const end = add(this.stack.around(boxes, selection.focus, true), 0, false, 0);
      add(this.stack.around(boxes, selection.focus, false), 0, true, end);
      // The function itself is the root.
      this.drawn = this.drawn.filter((box) => box.node !== 0).map((box) => ({ ...box, level: box.level - 1 }));
      for (const part of this.parts) part.levels--;
      this.parts[1]!.top = this.parts[0]!.levels * LEVEL + 8;
      return;
    }
    if (this.view === "time order") {
      add(this.timed(), 0, false, 0);
      return;
    }
    add(boxes, selection.zoom < boxes.parent.length ? selection.zoom : 0, selection.view === "icicle", 0);
  }

  /** Places the boxes of a tree, with `zoom` as wide as the canvas and its callers below it. */
  private place(index: number, zoom: number): void {
    const part = this.parts[index]!;
    const { boxes } = part;
    const [all, allBefore] = [boxes.total[0]!, boxes.before?.[0] ?? 0];
    const share = (node: number): number => {
      const now = all > 0 ? boxes.total[node]! / all : 0;
      const before = allBefore > 0 ? boxes.before![node]! / allBefore : 0;
      if (boxes.before === null || allBefore === 0) return now;
      return all === 0 ? before : (now + before) / 2;
    };
    const callers: number[] = [];
    for (let node = zoom; node > 0; node = boxes.parent[node]!) callers.unshift(boxes.parent[node]!);
    callers.forEach((node, level) => this.drawn.push({ part: index, node, level, x: 0, width: this.canvas.width }));
    const scale = this.canvas.width / Math.max(share(zoom), 1e-12);
    // Level by level, so that the boxes of a level are in the order of their places.
    let row: Box[] = [{ part: index, node: zoom, level: callers.length, x: 0, width: this.canvas.width }];
    while (row.length > 0) {
      if (this.view !== "time order" && row[0]!.level > callers.length + FIRST_LEVELS && row.every((box) => box.width < LEAST_LEVEL)) {
        this.isCut = true;
        break;
      }
      part.levels = row[0]!.level + 1;
      this.drawn.push(...row);
      const next: Box[] = [];
      for (const box of row) {
        let x = box.x;
        for (const node of boxes.children(box.node)) {
          const width = share(node) * scale;
          if (width >= LEAST && boxes.label[node] !== BLANK) next.push({ part: index, node, level: box.level + 1, x, width });
          x += width;
        }
      }
      row = next;
    }
  }

  private draw(): void {
    this.canvas.width = this.canvas.element.clientWidth;
    if (this.canvas.width === 0) return;
    this.layout();
    const last = this.parts[this.parts.length - 1]!;
    this.canvas.fit(Math.max(60, last.top + last.levels * LEVEL + 2));
    const { context } = this.canvas;
    const expression = this.state.expression();
    this.hits = expression === null ? [] : this.profile.labels.map(([name, kind]) => kind > 1 && expression.test(name));
    context.font = FONT;
    context.textBaseline = "middle";
    const letter = context.measureText("m").width;
    const root = this.stack.selected(this.state).boxes;
    const [ink, edge, hit, dark] = [color("box-ink"), color("focus"), color("hit"), (isDark() ? 1 : 0) as 0 | 1] as const;
    const modules = this.moduleColors();
    const hasZoom = this.view === "flame" || this.view === "icicle";
    const zoomLevel = this.drawn.findIndex((box) => box.node === this.state.selection.zoom);
    this.drawn.forEach((box, index) => {
      const label = this.labelIn(box.part, box.node);
      const y = this.y(box);
      const isHit = label !== null && this.hits[this.parts[box.part]!.boxes.label[box.node]!] === true;
      const [fill, alpha] = this.fill(label, box, root, modules, dark);
      context.globalAlpha = (isHit ? 1 : alpha) * (hasZoom && index < zoomLevel ? 0.55 : 1);
      context.fillStyle = isHit ? hit : fill;
      context.fillRect(box.x, y, box.width > 3 ? box.width - 0.7 : box.width, LEVEL - 1);
      context.globalAlpha = 1;
      if (label?.[1] === 1) this.hatch(box.x, y, box.width);
      if (this.cursor !== null && box.part === this.cursor.part && box.node === this.cursor.node && document.activeElement === this.canvas.element) {
        context.strokeStyle = edge;
        context.lineWidth = 2;
        context.strokeRect(box.x + 1, y + 1, Math.max(1, box.width - 3), LEVEL - 3);
      }
      const letters = Math.floor((box.width - 6) / letter);
      if (letters < 3) return;
      context.fillStyle = ink;
      context.fillText(cut(label?.[0] ?? "all", letters), box.x + 4, y + LEVEL / 2, box.width - 6);
    });
    this.drawLegend(root, modules, dark);
    if (expression !== null) {
      const weight = this.stack.matched(root, expression);
      this.status.replaceChildren(make("span", { id: "matched", "data-value": String(weight) },
        `search matches ${percent(weight, root.total[0]!)}, ${amount(weight, this.profile.unit)}`));
    } else if (document.activeElement !== this.canvas.element) {
      this.status.textContent = "";
    }
    if (root.total[0] === 0 && (root.before?.[0] ?? 0) === 0) this.status.textContent = "nothing selected";
  }

  private hatch(x: number, y: number, width: number): void {
    const { context } = this.canvas;
    context.save();
    context.beginPath();
    context.rect(x, y, width - 0.7, LEVEL - 1);
    context.clip();
    context.strokeStyle = color("line");
    context.lineWidth = 2;
    context.beginPath();
    for (let at = x - LEVEL; at < x + width; at += 8) {
      context.moveTo(at, y + LEVEL);
      context.lineTo(at + LEVEL, y);
    }
    context.stroke();
    context.restore();
  }

  private fill(label: Label | null, box: Box, root: Boxes, modules: Map<number, number>, dark: 0 | 1): [string, number] {
    const { colors } = this.data;
    if (label === null) return [color("band"), 1];
    const { boxes } = this.parts[box.part]!;
    if (boxes.before !== null && root.before !== null) {
      const now = boxes.total[box.node]! / Math.max(1, root.total[0]!);
      const before = boxes.before[box.node]! / Math.max(1, root.before[0]!);
      const points = Math.abs(now - before) * 100;
      const steps = this.stack.isNoise(now, before) ? 0 : [0.1, 0.5, 2, 8].filter((limit) => points >= limit).length;
      return [colors.changes[4 + (now < before ? -steps : steps)]![dark], 1];
    }
    const alpha = SHADES[shade(label[0])]!;
    if (this.byModule) return [colors.modules[label[2] === null ? 8 : modules.get(label[2]) ?? 8]![dark], alpha];
    if (label[1] === 1) return [color("band"), 1];
    return [colors[this.profile.is_off_cpu ? "off_cpu" : "kinds"][label[1]]![dark], alpha];
  }

  /** The heaviest modules by the weight of their own. */
  private moduleColors(): Map<number, number> {
    if (!this.byModule) return new Map();
    const { own, label } = this.stack.selected(this.state).boxes;
    const weights = new Map<number, number>();
    own.forEach((weight, node) => {
      const module = node === 0 || label[node]! < 0 ? null : this.profile.labels[label[node]!]![2];
      if (module !== null && weight > 0) weights.set(module, (weights.get(module) ?? 0) + weight);
    });
    return new Map([...weights].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([module], place) => [module, place]));
  }

  private drawLegend(root: Boxes, modules: Map<number, number>, dark: 0 | 1): void {
    const { colors } = this.data;
    if (root.before !== null) {
      const keys = colors.changes.map((pair) => legendEntry(pair[dark]!, ""));
      this.legend.replaceChildren("less ", ...keys, "more: 0.1, 0.5, 2 and 8 percentage points; gray: unchanged, or within noise (95%)");
      return;
    }
    const weights = new Map<number, number>();
    root.own.forEach((weight, node) => {
      const label = node === 0 ? null : this.profile.labels[root.label[node]!]!;
      if (label === null || weight === 0) return;
      const key = this.byModule ? (label[2] === null ? 8 : modules.get(label[2]) ?? 8) : label[1];
      weights.set(key, (weights.get(key) ?? 0) + weight);
    });
    const names = new Map([...modules].map(([module, place]) => [place, this.profile.modules[module]!.split("/").pop()!]));
    const palette = this.byModule ? colors.modules : colors[this.profile.is_off_cpu ? "off_cpu" : "kinds"];
    const known = [...weights].sort((a, b) => b[1] - a[1]).map(([key, weight]) => {
      const name = this.byModule ? names.get(key) ?? "others" : key === 0 ? "no stack" : colors.names[key] ?? "";
      const fill = palette[key]![dark]!;
      return legendEntry(fill.startsWith("url") ? color("line") : fill, `${cut(name, 40)} ${percent(weight, root.total[0]!)}`);
    });
    const hint = this.isCut ? [make("span", {}, `deeper frames are narrower than ${LEAST_LEVEL} pixels: zoom in`)] : [];
    this.legend.replaceChildren(...known, ...hint);
  }
}

/** The shade of a name, as in pictures: FNV-1a. */
function shade(name: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < name.length; index++) hash = Math.imul(hash ^ name.charCodeAt(index), 0x01000193);
  return ((hash ^ (hash >>> 16)) >>> 0) % 4;
}
