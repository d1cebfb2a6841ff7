// Where the boxes of a tree are in a picture.

import { BLANK, type Boxes } from "./stacks.ts";

/** Pixels: boxes that are narrower are drawn together, and nothing above them. */
export const LEAST = 1;
/** Levels whose widest box is narrower are left out, above the first ones. */
export const LEAST_LEVEL = 3;
const FIRST_LEVELS = 12;

export interface Box {
  part: number;
  /** The first of several narrow ones. */
  node: number;
  level: number;
  x: number;
  width: number;
  /** Frames that are drawn as one, since each is narrower than a pixel; otherwise 1. */
  frames: number;
}

/** A tree of the picture: its boxes, where it is, and whether it grows downwards. */
export interface Part {
  boxes: Boxes;
  top: number;
  down: boolean;
  /** Boxes by level, from left to right. */
  levels: Box[][];
  /** Whether levels are left out, since all of their boxes are narrow. */
  isCut: boolean;
}

/** Width of a node as a share of the picture: of both traces, if two are compared. */
function shares(boxes: Boxes): (node: number) => number {
  const { total, before } = boxes;
  const all = total[0]!, allBefore = before?.[0] ?? 0;
  if (before === null || allBefore === 0) return (node) => (all > 0 ? total[node]! / all : 0);
  if (all === 0) return (node) => before[node]! / allBefore;
  return (node) => (total[node]! / all + before[node]! / allBefore) / 2;
}

/** Places the boxes of a tree, with `zoom` as wide as the picture and its callers below it. */
export function placed(part: number, boxes: Boxes, zoom: number, width: number, down: boolean, isInTime: boolean): Part {
  const share = shares(boxes);
  const callers: number[] = [];
  for (let node = zoom; node > 0; node = boxes.parent[node]!) callers.unshift(boxes.parent[node]!);
  const levels = callers.map((node, level): Box[] => [{ part, node, level, x: 0, width, frames: 1 }]);
  const scale = width / Math.max(share(zoom), 1e-12);
  // Level by level, so that the boxes of a level are in the order of their places.
  let row: Box[] = [{ part, node: zoom, level: callers.length, x: 0, width, frames: 1 }];
  let isCut = false;
  while (row.length > 0) {
    const level = levels.length;
    if (!isInTime && level > callers.length + FIRST_LEVELS && row.every((box) => box.width < LEAST_LEVEL || box.frames > 1)) {
      isCut = true;
      break;
    }
    levels.push(row);
    const next: Box[] = [];
    for (const box of row) {
      if (box.frames > 1 || box.width < LEAST) continue;
      let x = box.x;
      let narrow: Box | null = null;
      for (const node of boxes.children(box.node)) {
        const wide = share(node) * scale;
        if (wide >= LEAST && boxes.label[node] !== BLANK) {
          next.push({ part, node, level: level + 1, x, width: wide, frames: 1 });
          narrow = null;
        } else if (wide > 0 && boxes.label[node] !== BLANK) {
          if (narrow === null) next.push((narrow = { part, node, level: level + 1, x, width: 0, frames: 0 }));
          narrow.width += wide;
          narrow.frames++;
        } else if (wide > 0) {
          narrow = null;
        }
        x += wide;
      }
    }
    row = next.filter((box) => box.width >= LEAST / 2);
  }
  return { boxes, top: 0, down, levels, isCut };
}
