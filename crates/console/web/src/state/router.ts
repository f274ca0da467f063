// The page that is shown is what the URL says, so that links can be shared and the browser's back and forward work.
//
// What belongs to one visit and not to a link, such as the snapshot that is being paged through, goes into the history's state.

import { store } from './store';

export interface Place {
  path: string[];
  params: URLSearchParams;
  state: VisitState;
}

export interface VisitState {
  /** The snapshot of the list that is shown, and when it was taken (milliseconds). */
  snapshot?: { revision: string; taken: number } | undefined;
  /** Where lists of servers that have no page numbers go on. */
  token?: string | undefined;
}

const ROOT = '/console/';

function read(): Place {
  const { pathname, search } = window.location;
  const rest = pathname.startsWith(ROOT) ? pathname.slice(ROOT.length) : '';
  const path = rest.split('/').filter((part) => part !== '');
  return {
    path: path.map((part) => decodeURIComponent(part)),
    params: new URLSearchParams(search),
    state: (window.history.state as VisitState | null) ?? {},
  };
}

export const place = store<Place>(read());

window.addEventListener('popstate', () => place.set(read()));

export function href(path: string[], params?: URLSearchParams | Record<string, string>): string {
  const search = new URLSearchParams(params);
  for (const [key, value] of [...search.entries()]) if (value === '') search.delete(key);
  const text = search.toString();
  return ROOT + path.map((part) => encodeURIComponent(part)).join('/') + (text === '' ? '' : `?${text}`);
}

/** Goes somewhere. `replace` leaves no step behind, as while somebody types. */
export function go(to: string, options: { replace?: boolean; state?: VisitState } = {}): void {
  const state = options.state ?? {};
  if (options.replace === true) window.history.replaceState(state, '', to);
  else window.history.pushState(state, '', to);
  place.set(read());
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
