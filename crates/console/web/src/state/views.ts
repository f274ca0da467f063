// The views of config maps that the user may read. They are read when a page that shows them is opened.

import { session } from '../api/session';
import { sharedViews, type SharedView } from '../api/views';
import { choices } from './choices';
import { href } from './router';
import { store } from './store';

export const shared = store<SharedView[]>([]);

let user = session.get().user?.username;
session.follow(() => {
  const now = session.get().user?.username;
  if (now === user) return;
  user = now;
  shared.set([]);
});

/** Reads them again. */
export async function readShared(signal?: AbortSignal): Promise<void> {
  const found = await sharedViews(choices.get().namespaces, signal).catch(() => null);
  if (found !== null && signal?.aborted !== true) shared.set(found);
}

/** The link of a view, which leads to what it is when the link is opened. */
export function linkOf({ namespace, map, key }: SharedView): string {
  return href(['views', namespace, map, key]);
}
