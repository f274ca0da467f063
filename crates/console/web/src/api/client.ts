// Requests to the server from which the page was loaded. Every failure is one error type, which contains the server's
// Status.

import { readJson, jsonText } from '../lib/json';
import { isAway, noteAway } from './connection';
import { credentialsAgain, end, isEnded, session, type UserInfo } from './session';
import type { Status } from './types';

export class ApiError extends Error {
  readonly code: number;
  readonly status: Status | null;
  /** Whether an aggregated server refused the request: this one knows the user. */
  isOfAnother = false;
  /** After how many seconds the server wants to be asked again; 0 where it does not say. */
  retryAfter = 0;

  constructor(code: number, status: Status | null, text: string) {
    super(status?.message ?? text);
    this.name = 'ApiError';
    this.code = code;
    this.status = status;
  }
}

/** Nothing answered: the server is away, or the browser does not trust its certificate any more. */
export class Unreachable extends Error {
  constructor() {
    super('The server does not answer.');
    this.name = 'Unreachable';
  }
}

export interface Call {
  method?: string;
  accept?: string;
  contentType?: string;
  body?: string;
  signal?: AbortSignal | undefined;
  /** In place of the session's. */
  token?: string | undefined;
}

/** How many characters of an answer that is no Status are shown. */
const MOST_TEXT = 1000;
/** How often a read is sent again when the server asks for patience, and how long it is waited for at most, in seconds. */
const MOST_TRIES = 3;
const LONGEST_PATIENCE = 10;

export const JSON_TYPE = 'application/json';
export const TABLE = 'application/json;as=Table;v=v1;g=meta.k8s.io';
export const METADATA_LIST = 'application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io';

function isStatus(value: unknown): value is Status {
  return typeof value === 'object' && value !== null && (value as Partial<Status>).kind === 'Status';
}

async function failure(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => '');
  try {
    const value = readJson(text);
    if (isStatus(value)) return wait(response, new ApiError(response.status, value, response.statusText));
  } catch {
    // Some error responses are plain text.
  }
  const shown = text.trim().slice(0, MOST_TEXT);
  return wait(response, new ApiError(response.status, null, shown || `${response.status} ${response.statusText}`));
}

function wait(response: Response, error: ApiError): ApiError {
  const seconds = Number(response.headers.get('Retry-After') ?? error.status?.details?.retryAfterSeconds ?? 0);
  error.retryAfter = Number.isFinite(seconds) ? Math.max(0, seconds) : 0;
  return error;
}

export function isAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError';
}

/** A call with its own members alone, whatever else an object may inherit. */
function ownMembers(call: Call): Call {
  return Object.assign(Object.create(null) as Call, call);
}

/** The path with the wish for plain JSON. Servers indent it for browsers, which costs them and the network time. */
function plain(path: string, accept: string): string {
  if (!accept.startsWith(JSON_TYPE) || path.startsWith('/openapi/')) return path;
  return `${path}${path.includes('?') ? '&' : '?'}pretty=false`;
}

async function request(of: string, call: Call, token: string): Promise<Response> {
  const path = plain(of, call.accept ?? JSON_TYPE);
  const headers: [string, string][] = [['Accept', call.accept ?? JSON_TYPE]];
  if (token !== '') headers.push(['Authorization', `Bearer ${token}`]);
  if (call.body !== undefined) headers.push(['Content-Type', call.contentType ?? JSON_TYPE]);
  const init: RequestInit = {
    method: call.method ?? 'GET',
    headers,
    body: call.body ?? null,
    signal: call.signal ?? null,
    cache: 'no-cache',
    redirect: 'error',
    referrerPolicy: 'no-referrer',
  };
  try {
    return await fetch(path, Object.assign(Object.create(null) as RequestInit, init));
  } catch (error) {
    if (isAborted(error)) throw error;
    noteAway('The server does not answer.');
    throw new Unreachable();
  }
}

const paused = (seconds: number, signal: AbortSignal | undefined) =>
  new Promise<void>((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(new DOMException('The request is no longer wanted.', 'AbortError'));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve();
    }, seconds * 1000);
    signal?.addEventListener('abort', stop);
  });

/** Whether a read is to be sent again after a while: the server has too much to do, and says when to come again. */
function isPatient(error: ApiError, isRead: boolean, tries: number): boolean {
  const says = error.code === 429 && error.retryAfter > 0 && error.retryAfter <= LONGEST_PATIENCE;
  return isRead && says && tries < MOST_TRIES;
}

/** Sends a request; the answer is a good one. When the credentials have ended, a read waits until the user has logged in again. */
export async function send(path: string, given: Call = {}): Promise<Response> {
  const call = ownMembers(given);
  const isRead = (call.method ?? 'GET') === 'GET';
  for (let tries = 1; ; tries += 1) {
    if (call.token === undefined && isRead && isEnded()) await credentialsAgain(call.signal);
    const token = call.token ?? session.get().credentials?.token ?? '';
    const response = await request(path, call, token);
    if (response.ok) return response;
    const error = await failure(response);
    if (isPatient(error, isRead, tries)) {
      await paused(error.retryAfter, call.signal);
      continue;
    }
    if (isAway(error.code) && error.status === null) noteAway('What is before the server does not reach it.');
    if (error.code !== 401 || call.token !== undefined) throw error;
    error.isOfAnother = await isKnown(token);
    if (error.isOfAnother) throw error;
    // Another request may have ended the session, and the user may have logged in again since.
    if (session.get().credentials?.token === token) end(error.message);
    const { credentials, ended } = session.get();
    if (!isRead || (credentials === null && ended === null)) throw error;
  }
}

/** The user of a token, as the server knows it. */
export async function whoAmI(token: string): Promise<UserInfo> {
  if (!/^[\x21-\x7e]*$/.test(token)) {
    throw new Error('This is no token: it has spaces or characters in it that no token has. It may be cut or changed.');
  }
  const body = { kind: 'SelfSubjectReview', apiVersion: 'authentication.k8s.io/v1' };
  const answer = await postJson<{ status?: { userInfo?: Partial<UserInfo> } }>(
    '/apis/authentication.k8s.io/v1/selfsubjectreviews',
    body,
    { token },
  );
  return { username: '', ...answer.status?.userInfo };
}

export const ANONYMOUS = 'system:anonymous';

const asked = new Map<string, Promise<boolean>>();

/** Whether the server still knows the user of a token. An aggregated server may answer 401 for reasons of its own. */
function isKnown(token: string): Promise<boolean> {
  const before = asked.get(token);
  if (before !== undefined) return before;
  const answer = whoAmI(token)
    .then((user) => user.username !== ANONYMOUS)
    .catch((error: unknown) => !hasCode(error, 401))
    .finally(() => asked.delete(token));
  asked.set(token, answer);
  return answer;
}

export async function bodyOf<T>(response: Response): Promise<T> {
  const text = await response.text();
  try {
    return readJson(text) as T;
  } catch {
    throw new Error('The server that has these objects answers with something that is no JSON.');
  }
}

export async function getJson<T>(path: string, call: Call = {}): Promise<T> {
  return bodyOf<T>(await send(path, call));
}

export async function postJson<T>(path: string, body: unknown, call: Call = {}): Promise<T> {
  return getJson<T>(path, { ...call, method: 'POST', body: jsonText(body) });
}

/** What to tell the user. */
export function told(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function hasCode(error: unknown, code: number): error is ApiError {
  return error instanceof ApiError && error.code === code;
}
