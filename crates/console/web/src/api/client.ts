// Requests to the server that the page came from. Failures are one error type, which carries the server's Status.

import { logOut, session } from './session';
import type { Status } from './types';

export class ApiError extends Error {
  readonly code: number;
  readonly status: Status | null;

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

export const JSON_TYPE = 'application/json';
export const TABLE = 'application/json;as=Table;v=v1;g=meta.k8s.io';
export const METADATA_LIST = 'application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io';

function isStatus(value: unknown): value is Status {
  return typeof value === 'object' && value !== null && (value as Partial<Status>).kind === 'Status';
}

async function failure(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => '');
  try {
    const value: unknown = JSON.parse(text);
    if (isStatus(value)) return new ApiError(response.status, value, response.statusText);
  } catch {
    // Some refusals are plain text.
  }
  return new ApiError(response.status, null, text.trim() || `${response.status} ${response.statusText}`);
}

export function isAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError';
}

/** Sends a request; the answer is a good one. */
export async function send(path: string, call: Call = {}): Promise<Response> {
  const headers: Record<string, string> = { Accept: call.accept ?? JSON_TYPE };
  const token = call.token ?? session.get().credentials?.token ?? '';
  if (token !== '') headers['Authorization'] = `Bearer ${token}`;
  if (call.body !== undefined) headers['Content-Type'] = call.contentType ?? JSON_TYPE;
  let response: Response;
  try {
    response = await fetch(path, {
      method: call.method ?? 'GET',
      headers,
      body: call.body ?? null,
      signal: call.signal ?? null,
      cache: 'no-cache',
      redirect: 'error',
      referrerPolicy: 'no-referrer',
    });
  } catch (error) {
    throw isAborted(error) ? error : new Unreachable();
  }
  if (response.ok) return response;
  const error = await failure(response);
  if (error.code === 401 && call.token === undefined) logOut();
  throw error;
}

export async function getJson<T>(path: string, call: Call = {}): Promise<T> {
  return (await (await send(path, call)).json()) as T;
}

export async function postJson<T>(path: string, body: unknown, call: Call = {}): Promise<T> {
  return getJson<T>(path, { ...call, method: 'POST', body: JSON.stringify(body) });
}

/** What to tell the user. */
export function told(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function hasCode(error: unknown, code: number): error is ApiError {
  return error instanceof ApiError && error.code === code;
}
