// All keys of the console, by where they work. The page of keys and the help are made of this table.

export const KEYMAP = {
  everywhere: {
    title: 'Everywhere',
    keys: {
      ':': 'search objects, resources and actions',
      N: 'choose namespaces',
      '?': 'the keys of this page',
      c: 'create or apply from YAML',
      'g r': 'go to the start page',
      'g p': 'go to pods',
      'g d': 'go to deployments',
      'g n': 'go to namespaces',
      'g o': 'go to nodes',
      'g e': 'go to events',
      'g c': 'go to definitions of custom resources',
      'g v': 'go to storage versions',
      'g s': "go to the server's own load",
      'g a': 'go to who may do what',
      'g w': 'go to the kept views',
      'g k': 'go to the page of keys',
      T: 'dark or light',
    },
  },
  list: {
    title: 'In lists',
    keys: {
      j: 'next row',
      k: 'previous row',
      Enter: 'open the row that has the focus',
      x: 'select the row that has the focus',
      X: 'select all rows of the page, or none',
      '/': 'search',
      l: 'filter by labels',
      F: 'filter by fields',
      '#': 'jump to a page',
      n: 'next page',
      p: 'previous page',
      r: 'show the newest state',
      f: 'show or hide the counts',
      w: 'show all columns, or those that matter',
      C: 'choose columns',
      t: 'the list as it was, or as it is',
      L: 'follow changes, or not',
    },
  },
  object: {
    title: 'On objects',
    keys: {
      u: 'up to the list',
      o: 'what it is',
      y: 'its YAML',
      v: 'its events',
      R: 'its related objects',
      h: 'its history',
      O: 'the owners of its fields',
      l: 'its logs',
      S: 'a shell in it',
      P: 'requests to its ports',
      e: 'edit',
      s: 'scale',
      a: 'the menu of actions',
      D: 'delete',
    },
  },
} as const;

export type KeyPlace = keyof typeof KEYMAP;

export interface Key {
  keys: string;
  does: string;
  run: () => void;
}

/** Keys of a place with what they do. */
export function bind<P extends KeyPlace>(
  where: P,
  runs: Partial<Record<keyof (typeof KEYMAP)[P]['keys'] & string, () => void>>,
): Key[] {
  const does = KEYMAP[where].keys as Record<string, string>;
  return Object.entries(runs as Record<string, (() => void) | undefined>).flatMap(([keys, run]) =>
    run === undefined ? [] : [{ keys, does: does[keys] ?? '', run }],
  );
}
