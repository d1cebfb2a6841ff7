// Instructions and source lines of the hottest functions, as `annotate` prints them, of the function that is chosen.

import { commandLine, make, panel } from "./dom.ts";
import { type Data, type FunctionCode } from "./data.ts";
import { codeLines } from "./explorer/code.ts";
import { counted, cut, harmless } from "./format.ts";
import type { State } from "./state.ts";

export class Listings {
  private readonly panel = panel("code", "Code");
  readonly element = this.panel.element;
  private readonly choice = make("select", { "aria-label": "Function" });
  private readonly listing = make("div", {});
  private readonly command = commandLine(() => this.text());
  private readonly all: FunctionCode[];
  private shown: FunctionCode | null = null;
  /** A function that the page has nothing of. */
  private other: string | null = null;
  private last = "";

  constructor(private readonly data: Data, private readonly state: State) {
    this.all = data.code!.functions;
    this.panel.tools.append(this.choice);
    this.panel.body.append(this.listing, this.command.element);
    this.choice.addEventListener("change", () => {
      const chosen = this.ofEvent()[Number(this.choice.value)];
      if (chosen !== undefined) this.state.change({ focus: chosen.function });
    });
  }

  static has(data: Data): boolean {
    return data.code != null;
  }

  /** The functions of the event whose stacks are shown; of another one, those of the event with the most samples. */
  private ofEvent(): FunctionCode[] {
    const name = this.data.profiles[this.state.selection.profile]?.name;
    const own = this.all.filter((one) => one.event === name);
    return own.length > 0 ? own : this.all.filter((one) => one.event === this.all[0]!.event);
  }

  update(): void {
    const functions = this.ofEvent();
    const { focus } = this.state.selection;
    const found = focus === null ? undefined : functions.find((one) => one.function === focus);
    this.shown = focus !== null && found === undefined ? null : found ?? functions.find((one) => one.lines !== undefined) ?? functions[0] ?? null;
    this.other = this.shown === null ? focus : null;
    const key = JSON.stringify([functions[0]?.event, this.shown === null ? focus : functions.indexOf(this.shown)]);
    this.command.update();
    if (key === this.last) return;
    this.last = key;
    const options = functions.map((one, place) => make("option", { value: String(place) }, `${one.percent.toFixed(2)}% ${cut(harmless(one.function), 80)}${one.lines === undefined ? " (no code)" : ""}`));
    const none = this.shown === null ? [make("option", { value: "-1" }, cut(harmless(focus ?? ""), 80))] : [];
    this.choice.replaceChildren(...none, ...options);
    this.choice.value = this.shown === null ? "-1" : String(functions.indexOf(this.shown));
    this.show(functions);
  }

  private show(functions: FunctionCode[]): void {
    const { shown } = this;
    const without = functions.filter((one) => one.lines === undefined);
    const notes = [`${counted(functions.length - without.length, "function")} of ${harmless(functions[0]?.event ?? "")} with code, of the whole recording; a click on a function shows its code`];
    if (without.length > 0) notes.push(`without code: ${without.map((one) => cut(harmless(one.function), 60)).join(", ")}`);
    if (shown?.lines === undefined) {
      const why = shown === null ? `The page has the code of the ${counted(this.data.code!.most, "hottest function")} of an event alone; the command below prints that of ${harmless(this.other ?? "")}`
        : `${harmless(shown.function)} in ${harmless(shown.module)} is not shown: ${harmless(shown.reason ?? "")}`;
      this.listing.replaceChildren(make("p", { class: "note" }, why));
    } else {
      const more = shown.omitted === undefined || shown.omitted === 0 ? [] : [make("p", { class: "note" }, `${counted(shown.omitted, "more line")}: the command below prints all`)];
      this.listing.replaceChildren(codeLines(shown.lines.map(([share, text]) => [share, harmless(text)])), ...more);
    }
    this.panel.note.replaceChildren(...notes.map((note) => make("span", {}, note)));
  }

  private text(): string {
    const event = this.shown?.event ?? this.ofEvent()[0]?.event ?? "";
    const name = this.shown?.function ?? this.other ?? "";
    const words = [`--event=${event}`, ...(this.shown === null ? [] : [`--module=${this.shown.module}`])];
    return this.state.command(["annotate", ...words], { time: false, threads: false, more: name.startsWith("-") ? ["--", name] : [name] });
  }
}
