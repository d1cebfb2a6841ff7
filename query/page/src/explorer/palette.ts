// Colors of functions and threads: the same one has the same color everywhere.

import { isDark } from "../dom.ts";

const PALETTE: [string, string][] = [
  ["#8fb8e8", "#2f5d91"], ["#f2b5a0", "#8a4a35"], ["#a8d5a2", "#386b3a"], ["#d9b8ea", "#69407f"],
  ["#f0d48a", "#7a6020"], ["#9adbd6", "#2b6c68"], ["#f3b3cf", "#873f60"], ["#c9cf9a", "#5c6330"],
];

export function paletteColor(value: number): string {
  return PALETTE[value % PALETTE.length]![isDark() ? 1 : 0]!;
}

/** A number for the color of a name. */
export function nameNumber(name: string): number {
  let hash = 0;
  for (let at = 0; at < name.length; at++) hash = (hash * 31 + name.charCodeAt(at)) >>> 0;
  return hash;
}
