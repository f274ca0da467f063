// Who the user is: a bearer token, or nothing, where the browser shows a certificate of its own.
//
// A token lives in this tab alone: in memory, and in sessionStorage so that it outlives a reload. Nothing is stored longer.

import { store } from '../state/store';

export interface Credentials {
  /** Empty where the browser's own certificate says who asks. */
  token: string;
}

export interface UserInfo {
  username: string;
  uid?: string;
  groups?: string[];
}

export interface Session {
  credentials: Credentials | null;
  user: UserInfo | null;
}

const KEY = 'keelson.credentials';

function stored(): Credentials | null {
  const text = sessionStorage.getItem(KEY);
  if (text === null) return null;
  try {
    const value = JSON.parse(text) as Partial<Credentials>;
    return typeof value.token === 'string' ? { token: value.token } : null;
  } catch {
    return null;
  }
}

export const session = store<Session>({ credentials: stored(), user: null });

export function logIn(credentials: Credentials, user: UserInfo): void {
  sessionStorage.setItem(KEY, JSON.stringify(credentials));
  session.set({ credentials, user });
}

export function logOut(): void {
  sessionStorage.removeItem(KEY);
  session.set({ credentials: null, user: null });
}
