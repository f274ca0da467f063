// Choices of a user in this browser: namespaces, favourites, columns, recent pages. No credentials are among them.
//
// Choices are kept by user name. Recent pages and namespaces are dropped when the user logs out.

import { session } from '../api/session';
import { store, type Store } from './store';

export interface Choices {
  /** The namespaces of lists; none for all. */
  namespaces: string[];
  /** Namespaces that were chosen before, the newest first. */
  recentNamespaces: string[];
  /** Pages that were open before, the newest first. */
  recent: Link[];
  favourites: Link[];
  /** Saved views of lists. */
  views: Link[];
  /** Columns of lists by resource. */
  columns: Record<string, ColumnChoice>;
  density: 'usual' | 'dense';
}

export interface Link {
  name: string;
  /** An address below `/console/`. */
  to: string;
}

export interface ColumnChoice {
  hidden: string[];
  /** Paths whose values are shown as further columns. */
  added: string[];
  widths: Record<string, number>;
}

const KEY = 'keelson.choices.';
const MOST_RECENT = 12;
const MOST_KEPT = 100;
const NOTHING: Choices = {
  namespaces: [],
  recentNamespaces: [],
  recent: [],
  favourites: [],
  views: [],
  columns: {},
  density: 'usual',
};

function keyOf(): string {
  return KEY + (session.get().user?.username ?? '');
}

function isLink(value: unknown): value is Link {
  const link = value as Partial<Link> | null;
  return typeof link?.name === 'string' && typeof link.to === 'string' && link.to.startsWith('/console/');
}

const texts = (value: unknown) =>
  Array.isArray(value) ? value.filter((one): one is string => typeof one === 'string').slice(0, MOST_KEPT) : [];
const links = (value: unknown) => (Array.isArray(value) ? value.filter(isLink).slice(0, MOST_KEPT) : []);

function columnsOf(value: unknown): Record<string, ColumnChoice> {
  if (typeof value !== 'object' || value === null) return {};
  const entries = Object.entries(value as Record<string, Partial<ColumnChoice> | null>).slice(0, MOST_KEPT);
  return Object.fromEntries(
    entries.map(([name, one]) => {
      const widths = Object.entries(one?.widths ?? {}).filter(([, width]) => typeof width === 'number');
      return [name, { hidden: texts(one?.hidden), added: texts(one?.added), widths: Object.fromEntries(widths) }];
    }),
  );
}

function read(): Choices {
  try {
    const value = JSON.parse(localStorage.getItem(keyOf()) ?? '{}') as Partial<Record<keyof Choices, unknown>>;
    return {
      namespaces: texts(value.namespaces),
      recentNamespaces: texts(value.recentNamespaces),
      recent: links(value.recent),
      favourites: links(value.favourites),
      views: links(value.views),
      columns: columnsOf(value.columns),
      density: value.density === 'dense' ? 'dense' : 'usual',
    };
  } catch {
    return NOTHING;
  }
}

export const choices: Store<Choices> = store(read());

type Change = (now: Choices) => Partial<Choices>;

/** Changes of before the user is known; they are made again above what was kept. */
let early: Change[] = [];
let user = session.get().user?.username;
session.follow(() => {
  const now = session.get();
  if (now.user?.username === user) return;
  const before = user;
  user = now.user?.username;
  if (user !== undefined) {
    choices.set(read());
    const changes = early;
    early = [];
    changes.forEach(choose);
  } else if (before !== undefined) forget(before);
});

/** Drops what tells where a user was. */
function forget(username: string): void {
  const { favourites, views, columns, density } = choices.get();
  const isEmpty = favourites.length + views.length + Object.keys(columns).length === 0 && density === 'usual';
  if (isEmpty) localStorage.removeItem(KEY + username);
  else keep(KEY + username, { ...NOTHING, favourites, views, columns, density });
  choices.set(NOTHING);
}

function keep(key: string, value: Choices): void {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // Storage is full or not allowed: the choices remain in memory.
  }
}

export function choose(change: Change): void {
  const now = choices.get();
  const next = { ...now, ...change(now) };
  choices.set(next);
  if (session.get().user === null) early.push(change);
  else keep(keyOf(), next);
}

export function chooseNamespaces(namespaces: string[]): void {
  choose(({ recentNamespaces }) => {
    const recent = [...namespaces, ...recentNamespaces.filter((one) => !namespaces.includes(one))];
    return { namespaces, recentNamespaces: recent.slice(0, MOST_RECENT) };
  });
}

export function noteRecent(link: Link): void {
  choose(({ recent }) => ({ recent: [link, ...recent.filter((one) => one.to !== link.to)].slice(0, MOST_RECENT) }));
}

export function isFavourite(to: string): boolean {
  return choices.get().favourites.some((one) => one.to === to);
}

export function toggleFavourite(link: Link): void {
  choose(({ favourites }) => {
    const others = favourites.filter((one) => one.to !== link.to);
    return { favourites: others.length === favourites.length ? [...favourites, link] : others };
  });
}

export function columnsFor(resource: string): ColumnChoice {
  const all = choices.get().columns;
  return (Object.hasOwn(all, resource) ? all[resource] : undefined) ?? { hidden: [], added: [], widths: {} };
}

export function chooseColumns(resource: string, changes: Partial<ColumnChoice>): void {
  choose(({ columns }) => ({ columns: { ...columns, [resource]: { ...columnsFor(resource), ...changes } } }));
}
