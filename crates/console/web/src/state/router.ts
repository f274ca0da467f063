// The URL determines the shown page, so links can be shared, and the browser's back and forward work.
//
// State of one visit that is not part of a link, such as the snapshot of a paged list, is kept in the history state.
// The user must confirm before a page with unsaved text is left.

import { store } from './store';

export interface Place {
  path: string[];
  params: URLSearchParams;
  state: VisitState;
  /** Whether the path has bytes in it that stand for no text. */
  malformed: boolean;
  /** Another number stands for data to be read again; changes of the view alone keep it. */
  visit: number;
}

export interface VisitState {
  /** The snapshot of the list that is shown, and when it was taken (milliseconds). */
  snapshot?: { revision: string; taken: number } | undefined;
  /** Where lists of servers that have no page numbers go on. */
  token?: string | undefined;
  /** The number of the step in the history of the tab. */
  step?: number | undefined;
  /** Where the rows of the page were scrolled to, and the row that had the focus. */
  left?: { top: number; row: string } | undefined;
}

const ROOT = '/console/';

function decoded(path: string): string[] | null {
  try {
    return path.split('/').flatMap((part) => (part === '' ? [] : [decodeURIComponent(part)]));
  } catch {
    return null;
  }
}

let visits = 0;

function read(): Place {
  visits += 1;
  const { pathname, search } = window.location;
  const path = decoded(pathname.startsWith(ROOT) ? pathname.slice(ROOT.length) : '');
  return {
    path: path ?? [],
    params: new URLSearchParams(search),
    state: (window.history.state as VisitState | null) ?? {},
    malformed: path === null,
    visit: visits,
  };
}

export const place = store<Place>(read());

/** Returns whether the page has text that is not saved. */
let guard: (() => boolean) | null = null;

/** A step away from such a page, which waits for the user's answer. */
export interface Leaving {
  /** Whether the step throws the text away. */
  loses: boolean;
  goOn: () => void;
}

export const leaving = store<Leaving | null>(null);

/** Asks the user before the page is left, as long as `isUnsaved` returns true. Returns a function that ends this. */
export function guardPage(isUnsaved: () => boolean): () => void {
  guard = isUnsaved;
  return () => {
    if (guard === isUnsaved) guard = null;
  };
}

/** Ends the questions of this page: its text is saved, or its object is gone. */
export function unguard(): void {
  guard = null;
}

/** Goes to the first page, and leaves nothing of this one in its step of the history. */
export function forgetPlace(): void {
  unguard();
  leaving.set(null);
  window.history.replaceState({ step: stepOf(place.get().state) }, '', ROOT);
  place.set(read());
}

/** Takes a step away from the page, after a question if text is not saved. */
export function leave(goOn: () => void, loses = false): void {
  if (guard?.() === true) leaving.set({ loses, goOn });
  else goOn();
}

function isAnotherPage(to: URL): boolean {
  const tab = (params: URLSearchParams) => params.get('tab') ?? '';
  const now = place.get();
  return (
    decoded(to.pathname.slice(ROOT.length))?.join('/') !== now.path.join('/') ||
    tab(to.searchParams) !== tab(now.params)
  );
}

const stepOf = (state: VisitState | null) => state?.step ?? 0;

/** Steps of the history that this page takes itself, whose events it expects. */
let expected: 'back' | 'on' | null = null;

function stepped(): void {
  const how = expected;
  expected = null;
  if (how === 'back') return;
  if (how !== 'on' && guard?.() === true && isAnotherPage(new URL(window.location.href))) {
    // The browser has already changed the URL. This goes back until the user has answered.
    const by = stepOf(window.history.state as VisitState | null) - stepOf(place.get().state) || -1;
    expected = 'back';
    window.history.go(-by);
    const goOn = () => {
      expected = 'on';
      window.history.go(by);
    };
    leaving.set({ loses: false, goOn });
    return;
  }
  place.set(read());
}

window.addEventListener('popstate', stepped);

export function href(path: string[], params?: URLSearchParams | Record<string, string>): string {
  const search = new URLSearchParams(params);
  for (const [key, value] of [...search.entries()]) if (value === '') search.delete(key);
  const text = search.toString();
  return ROOT + path.map((part) => encodeURIComponent(part)).join('/') + (text === '' ? '' : `?${text}`);
}

/** Returns what is remembered of a page that is left. */
let remembered: (() => VisitState['left']) | null = null;

/** Remembers what `left` returns in the step of a page, when another one is opened. Returns a function that ends this. */
export function rememberPage(left: () => VisitState['left']): () => void {
  remembered = left;
  return () => {
    if (remembered === left) remembered = null;
  };
}

function remember(): void {
  const left = remembered?.();
  if (left !== undefined) window.history.replaceState({ ...place.get().state, left }, '');
}

/** Reads the data of the page again. */
export function readAgain(): void {
  place.set(read());
}

/** Changes only how the page is shown: its data stays. */
export function show(to: string): void {
  const now = place.get();
  window.history.replaceState(now.state, '', to);
  visits -= 1;
  place.set({ ...read(), visit: now.visit });
}

/** Goes somewhere. `replace` leaves no step behind, as while somebody types. */
export function go(to: string, options: { replace?: boolean; state?: VisitState } = {}): void {
  const goOn = () => {
    if (options.replace !== true) remember();
    const step = stepOf(place.get().state) + (options.replace === true ? 0 : 1);
    const state = { ...options.state, step };
    if (options.replace === true) window.history.replaceState(state, '', to);
    else window.history.pushState(state, '', to);
    place.set(read());
  };
  if (isAnotherPage(new URL(to, window.location.href))) leave(goOn);
  else goOn();
}

/** The same page with other parameters; those that are empty go. */
export function withParams(of: Place, changes: Record<string, string | string[]>): string {
  const params = new URLSearchParams(of.params);
  for (const [key, value] of Object.entries(changes)) {
    params.delete(key);
    for (const one of Array.isArray(value) ? value : [value]) if (one !== '') params.append(key, one);
  }
  return href(of.path, params);
}
