// The session: a bearer token, or no token if the browser presents a client certificate.
//
// The token is kept only for this tab: in memory, and in sessionStorage so that it survives a reload. Nothing is stored
// longer. When credentials expire, the page with its unsaved text remains until the same user logs in again.

import { dropDrafts, dropDraftsOfOthers } from '../state/drafts';
import { forgetPlace } from '../state/router';
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
  /** The reason for which the credentials have ended, while the page waits for others. */
  ended: string | null;
  /** Another number stands for another user. */
  visit: number;
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

export const session = store<Session>({ credentials: stored(), user: null, ended: null, visit: 0 });

/** What the tabs of this origin say to each other. Nothing of it is stored. */
type Message = { kind: 'ask'; from: string } | { kind: 'give'; to: string; token: string } | { kind: 'out' };

const channel = typeof BroadcastChannel === 'undefined' ? null : new BroadcastChannel('keelson.session');
/** The name of this tab for others. */
const tab = crypto.randomUUID();
/** How long a new tab waits for another one, in milliseconds. */
const SHARED_WITHIN = 250;

function isMessage(value: unknown): value is Message {
  return typeof value === 'object' && value !== null && typeof (value as Partial<Message>).kind === 'string';
}

channel?.addEventListener('message', ({ data }: MessageEvent<unknown>) => {
  if (!isMessage(data)) return;
  const { credentials, ended } = session.get();
  if (data.kind === 'ask' && credentials !== null) {
    channel.postMessage({ kind: 'give', to: data.from, token: credentials.token } satisfies Message);
  } else if (data.kind === 'out' && credentials !== null && ended === null) {
    end('you have logged out in another tab');
  }
});

/** Takes the session of another tab of this browser, if one is open. */
export function shareSession(): Promise<void> {
  if (session.get().credentials !== null || channel === null) return Promise.resolve();
  return new Promise((resolve) => {
    const settle = () => {
      clearTimeout(timer);
      channel.removeEventListener('message', given);
      resolve();
    };
    const given = ({ data }: MessageEvent<unknown>) => {
      if (!isMessage(data) || data.kind !== 'give' || data.to !== tab) return;
      if (session.get().credentials === null) {
        sessionStorage.setItem(KEY, JSON.stringify({ token: data.token }));
        session.set({ ...session.get(), credentials: { token: data.token } });
      }
      settle();
    };
    const timer = setTimeout(settle, SHARED_WITHIN);
    channel.addEventListener('message', given);
    channel.postMessage({ kind: 'ask', from: tab } satisfies Message);
  });
}

export function logIn(credentials: Credentials, user: UserInfo): void {
  dropDraftsOfOthers(user.username);
  sessionStorage.setItem(KEY, JSON.stringify(credentials));
  const before = session.get();
  const isSame = before.user !== null && before.user.username === user.username;
  session.set({ credentials, user, ended: null, visit: before.visit + (isSame ? 0 : 1) });
}

/** Forgets the user. Neither text nor address of the page is left for the next one. */
export function logOut(): void {
  dropDrafts();
  forgetPlace();
  sessionStorage.removeItem(KEY);
  session.set({ ...session.get(), credentials: null, user: null, ended: null });
  channel?.postMessage({ kind: 'out' } satisfies Message);
}

/** Whether the page waits for other credentials. What asks again and again rests until then. */
export function isEnded(): boolean {
  return session.get().ended !== null;
}

/** Asks for other credentials over the page that is shown. */
export function end(why: string): void {
  if (session.get().credentials === null) return;
  sessionStorage.removeItem(KEY);
  session.set({ ...session.get(), credentials: null, ended: why });
}

/** Resolves once there are credentials; rejects when the user logs out, or the request is no longer wanted. */
export function credentialsAgain(signal?: AbortSignal | null): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = session.follow(() => settle());
    const settle = () => {
      const { credentials, ended } = session.get();
      const isOver = signal?.aborted === true || (credentials === null && ended === null);
      if (credentials === null && !isOver) return;
      stop();
      if (isOver) reject(new DOMException('The user has logged out.', 'AbortError'));
      else resolve();
    };
    signal?.addEventListener('abort', settle);
    settle();
  });
}
