// Merges an edit with the changes of other clients. List items are matched by their keys, never by their index.
//
// If both have changed a value, the edit wins and its path is reported. An edit whose place is missing in the newest
// object is dropped, and its path is reported too.

import type { Json, JsonObject } from '../api/types';
import { copied, isMap, isSame } from './json';
import { own, setOwn } from './own';
import { step } from './paths';
import { type Item, itemsOf, type Shape } from './shape';

/** A change of another client. */
export interface TheirChange {
  path: string;
  /** The same with the places of lists in their object. */
  place: string;
  theirs: Json | undefined;
  mine: Json | undefined;
  both: boolean;
}

export interface Unplaced {
  path: string;
  why: string;
}

export interface Merged {
  value: Json;
  theirs: TheirChange[];
  /** Where one's own value stays in place of theirs. */
  kept: string[];
  /** Changes of one's own that are not in the value. */
  unplaced: Unplaced[];
}

/** Members of metadata that the server writes by itself, differently with any write. */
const NOISE = ['resourceVersion', 'generation', 'managedFields'];

export function merge(base: Json, mine: Json, theirs: Json, shape: Shape): Merged {
  const merger = new Merger();
  const value = merger.merged({ base, mine, theirs, shape, path: '', place: '' });
  return { value: value ?? {}, theirs: merger.theirs, kept: merger.kept, unplaced: merger.unplaced };
}

interface Three {
  base: Json | undefined;
  mine: Json | undefined;
  theirs: Json | undefined;
  shape: Shape;
  path: string;
  place: string;
}

class Merger {
  readonly theirs: TheirChange[] = [];
  readonly kept: string[] = [];
  readonly unplaced: Unplaced[] = [];

  merged(three: Three): Json | undefined {
    const { base, mine, theirs, shape } = three;
    if (isSame(theirs, base)) return mine;
    if (isMap(mine) && isMap(theirs) && (base === undefined || isMap(base)) && !shape.isAtomic) {
      return this.maps(three, base ?? {}, mine, theirs);
    }
    if (Array.isArray(mine) && Array.isArray(theirs) && (base === undefined || Array.isArray(base))) {
      const [b, m, t] = [itemsOf(base ?? [], shape), itemsOf(mine, shape), itemsOf(theirs, shape)];
      if (b !== null && m !== null && t !== null) return this.lists(three, b, m, t);
    }
    return this.values(three);
  }

  private maps(three: Three, base: JsonObject, mine: JsonObject, theirs: JsonObject): JsonObject {
    const made: JsonObject = {};
    for (const name of new Set([...Object.keys(theirs), ...Object.keys(mine), ...Object.keys(base)])) {
      if (three.path === '.metadata' && NOISE.includes(name)) {
        if (Object.hasOwn(theirs, name)) setOwn(made, name, copied(theirs[name] ?? null));
        continue;
      }
      const value = this.merged({
        base: own(base, name),
        mine: own(mine, name),
        theirs: own(theirs, name),
        shape: three.shape.member(name),
        path: three.path + step(name),
        place: three.place + step(name),
      });
      if (value !== undefined) setOwn(made, name, value);
    }
    return made;
  }

  private lists(
    three: Three,
    base: Map<string, Item>,
    mine: Map<string, Item>,
    theirs: Map<string, Item>,
  ): Json | undefined {
    const order = orderOf([...base.keys()], [...mine.keys()], [...theirs.keys()]);
    if (order === null) return this.values(three);
    return order.flatMap((key) => {
      const item = theirs.get(key) ?? mine.get(key) ?? base.get(key);
      const value = this.merged({
        base: base.get(key)?.value,
        mine: mine.get(key)?.value,
        theirs: theirs.get(key)?.value,
        shape: three.shape.item(),
        path: three.path + (item?.id.shown ?? ''),
        place: three.place + placeOf(theirs.get(key)),
      });
      return value === undefined ? [] : [value];
    });
  }

  /** Of values that have no parts, which others have changed. */
  private values({ base, mine, theirs, path, place }: Three): Json | undefined {
    if (isSame(mine, theirs)) return mine;
    const both = !isSame(mine, base);
    this.theirs.push({ path, place, theirs, mine, both });
    if (!both) return theirs;
    if (theirs === undefined) {
      this.unplaced.push({ path, why: 'others have removed it' });
      return undefined;
    }
    if (Array.isArray(mine) && Array.isArray(theirs)) {
      this.unplaced.push({ path, why: 'both have changed this list, whose items have no keys or another order' });
      return theirs;
    }
    this.kept.push(path);
    return mine;
  }
}

function placeOf(item: Item | undefined): string {
  return item === undefined ? '' : `[${item.at}]`;
}

/** The order of all items: the one that was changed, with additions of the other side behind the items that they stood behind. */
function orderOf(base: string[], mine: string[], theirs: string[]): string[] | null {
  const keepsOrder = (list: string[], of: string[]) => {
    const common = list.filter((key) => of.includes(key));
    return isSame(
      common,
      of.filter((key) => list.includes(key)),
    );
  };
  const mineKeeps = keepsOrder(mine, base);
  if (!mineKeeps && !keepsOrder(theirs, base) && !keepsOrder(mine, theirs)) return null;
  const [first, second] = mineKeeps ? [theirs, mine] : [mine, theirs];
  const order = [...first];
  for (const others of [second, base]) {
    others.forEach((key, at) => {
      if (order.includes(key)) return;
      const before = others.slice(0, at).findLast((one) => order.includes(one));
      order.splice(before === undefined ? 0 : order.indexOf(before) + 1, 0, key);
    });
  }
  return order;
}
