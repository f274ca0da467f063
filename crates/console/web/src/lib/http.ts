// Requests and responses of HTTP/1.1 as bytes, for servers that are reached through a forwarded port.

export interface HttpRequest {
  method: string;
  /** Begins with a slash. */
  path: string;
  host: string;
  /** Fields, one a line. */
  headers: string;
  body: string;
}

export interface HttpResponse {
  status: string;
  headers: [string, string][];
  body: Uint8Array;
  /** Whether the body is whole by what its head says. */
  isWhole: boolean;
}

export const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];

const FIELD = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[ \t]*[^\r\n\0]*$/;
/** Fields that the console sets itself. */
const OWN = ['host', 'connection', 'content-length', 'transfer-encoding'];

/** What is wrong with a request; empty where nothing is. */
export function wrongIn({ path, headers }: HttpRequest): string {
  if (!/^\/[\x21-\x7e]*$/.test(path))
    return 'A path begins with / and has neither spaces nor other letters than ASCII.';
  const bad = fieldsOf(headers).find((line) => !FIELD.test(line));
  if (bad !== undefined) return `This is no header field: ${bad}`;
  const own = fieldsOf(headers).find((line) => OWN.includes(line.split(':', 1)[0]?.toLowerCase() ?? ''));
  return own === undefined ? '' : `The console sets this field itself: ${own}`;
}

function fieldsOf(headers: string): string[] {
  return headers
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
}

export function requestBytes(request: HttpRequest): Uint8Array {
  const body = new TextEncoder().encode(request.body);
  const length = body.length > 0 ? [`Content-Length: ${body.length}`] : [];
  const fields = [`Host: ${request.host}`, 'Connection: close', ...length, ...fieldsOf(request.headers)];
  const head = new TextEncoder().encode(`${request.method} ${request.path} HTTP/1.1\r\n${fields.join('\r\n')}\r\n\r\n`);
  return joined([head, body]);
}

export function joined(parts: Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

function endOfHead(bytes: Uint8Array): number {
  for (let at = 3; at < bytes.length; at += 1) {
    if (bytes[at] === 10 && bytes[at - 1] === 13 && bytes[at - 2] === 10 && bytes[at - 3] === 13) return at + 1;
  }
  return -1;
}

/** The content of chunks, and whether the last one is there. */
function dechunked(bytes: Uint8Array): { body: Uint8Array; isWhole: boolean } {
  const parts: Uint8Array[] = [];
  let at = 0;
  for (;;) {
    const end = bytes.indexOf(10, at);
    if (end < 0) return { body: joined(parts), isWhole: false };
    const size = Number.parseInt(new TextDecoder().decode(bytes.subarray(at, end)), 16);
    if (!Number.isFinite(size) || size < 0) return { body: joined(parts), isWhole: false };
    if (size === 0) return { body: joined(parts), isWhole: true };
    const from = end + 1;
    parts.push(bytes.subarray(from, from + size));
    if (from + size > bytes.length) return { body: joined(parts), isWhole: false };
    at = from + size + 2;
  }
}

/** Reads a response as far as it is there; null where it is no HTTP so far. */
export function responseOf(bytes: Uint8Array, method: string): HttpResponse | null {
  const end = endOfHead(bytes);
  if (end < 0) return null;
  const [first = '', ...lines] = new TextDecoder().decode(bytes.subarray(0, end)).trimEnd().split('\r\n');
  const match = /^HTTP\/\d(?:\.\d)? (\d{3}.*)$/.exec(first);
  if (match === null) return null;
  const status = match[1] ?? '';
  const headers = lines.map((line): [string, string] => {
    const colon = line.indexOf(':');
    return colon < 0 ? [line, ''] : [line.slice(0, colon), line.slice(colon + 1).trim()];
  });
  const of = (name: string) => headers.find(([one]) => one.toLowerCase() === name)?.[1];
  const rest = bytes.subarray(end);
  // Interim responses come before the one that is meant.
  if (/^1\d\d/.test(status)) return responseOf(rest, method);
  const isEmpty = method === 'HEAD' || /^(?:204|304)/.test(status);
  if (isEmpty) return { status, headers, body: new Uint8Array(), isWhole: true };
  if (of('transfer-encoding')?.toLowerCase().includes('chunked') === true)
    return { status, headers, ...dechunked(rest) };
  const length = Number(of('content-length') ?? Number.NaN);
  if (Number.isFinite(length)) {
    return { status, headers, body: rest.subarray(0, length), isWhole: rest.length >= length };
  }
  return { status, headers, body: rest, isWhole: false };
}

/** A body as text; null for bytes that are none. */
export function textOf(body: Uint8Array): string | null {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(body);
    return text.includes('\0') ? null : text;
  } catch {
    return null;
  }
}
