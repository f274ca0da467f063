// Unsaved texts of editors: one draft for each object, kept for this tab and this user.
//
// Drafts are in memory, and in sessionStorage if it has space, so that they survive a reload. A draft is removed when
// it is saved or discarded. All drafts are removed when the user logs out or another user logs in.

import { readJson, jsonText } from '../lib/json';
import type { KubeObject } from '../api/types';

export interface Draft {
  text: string;
  mode: 'replace' | 'apply';
  /** The state that the text was made of. */
  base: KubeObject;
}

interface Kept {
  user: string;
  object: string;
  draft: Draft;
}

const KEY = 'keelson.drafts';
/** How many drafts are kept, the newest ones. */
const MOST_DRAFTS = 20;
/** How many characters of drafts outlive a reload. */
const MOST_STORED = 1_000_000;

function stored(): Kept[] {
  try {
    const kept = readJson(sessionStorage.getItem(KEY) ?? '[]');
    return Array.isArray(kept) ? (kept as Kept[]).slice(0, MOST_DRAFTS) : [];
  } catch {
    return [];
  }
}

/** The newest first. */
let kept = stored();

function store(): void {
  const texts: string[] = [];
  let room = MOST_STORED;
  for (const one of kept) {
    const text = jsonText(one);
    room -= text.length;
    if (room < 0) break;
    texts.push(text);
  }
  try {
    if (texts.length === 0) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, `[${texts.join(',')}]`);
  } catch {
    // sessionStorage is full; the drafts remain in memory.
    sessionStorage.removeItem(KEY);
  }
}

export function draftOf(user: string, object: string): Draft | undefined {
  return kept.find((one) => one.user === user && one.object === object)?.draft;
}

export function keepDraft(user: string, object: string, draft: Draft): void {
  const others = kept.filter((one) => one.user !== user || one.object !== object);
  kept = [{ user, object, draft }, ...others].slice(0, MOST_DRAFTS);
  store();
}

export function dropDraft(user: string, object: string): void {
  kept = kept.filter((one) => one.user !== user || one.object !== object);
  store();
}

export function dropDraftsOfOthers(user: string): void {
  kept = kept.filter((one) => one.user === user);
  store();
}

export function dropDrafts(): void {
  kept = [];
  store();
}
