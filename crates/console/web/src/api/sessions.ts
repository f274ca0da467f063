// Sessions with a pod over a WebSocket, in the protocols of Kubernetes: commands in a container, and forwarded ports.
//
// A browser can't give a WebSocket a header, so the token is among the names of its protocols, as the API takes it.

import { readJson } from '../lib/json';
import { at, text } from '../lib/objects';
import { objectPath } from './paths';
import { session } from './session';
import type { Name } from './objects';

const PODS = { group: '', version: 'v1', plural: 'pods' };
const PROTOCOLS = ['v5.channel.k8s.io', 'v4.channel.k8s.io'];
const [INPUT, OUTPUT, ERRORS, STATUS, SIZE] = [0, 1, 2, 3, 4] as const;

export interface Exec {
  send: (text: string) => void;
  resize: (columns: number, rows: number) => void;
  close: () => void;
}

export interface ExecEvents {
  opened: () => void;
  output: (bytes: Uint8Array) => void;
  ended: (why: string) => void;
}

function base64url(of: string): string {
  const bytes = new TextEncoder().encode(of);
  const binary = [...bytes].map((one) => String.fromCharCode(one)).join('');
  return btoa(binary).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

function protocols(of: string[]): string[] {
  const token = session.get().credentials?.token ?? '';
  return token === '' ? of : [...of, `base64url.bearer.authorization.k8s.io.${base64url(token)}`];
}

/** Opens a session with a pod. */
function open(of: Name, subresource: string, params: URLSearchParams, wanted: string[]): WebSocket {
  const path = `${objectPath(PODS, of.namespace, of.name, subresource)}?${params.toString()}`;
  const url = new URL(path, window.location.href);
  url.protocol = url.protocol === 'http:' ? 'ws:' : 'wss:';
  const socket = new WebSocket(url, protocols(wanted));
  socket.binaryType = 'arraybuffer';
  return socket;
}

/** Sends bytes on a channel, if the session is open. */
function write(socket: WebSocket, channel: number, bytes: Uint8Array): void {
  if (socket.readyState !== WebSocket.OPEN) return;
  const message = new Uint8Array(bytes.length + 1);
  message[0] = channel;
  message.set(bytes, 1);
  socket.send(message);
}

const REFUSED = 'The server did not open a session: the pod may not run, its node may be away, or you may not.';

/** What the last message of a session says. */
function endOf(bytes: Uint8Array): string {
  try {
    const status = readJson(new TextDecoder().decode(bytes));
    if (text(at(status, 'status')) === 'Success') return '';
    return text(at(status, 'message')) || 'The command failed.';
  } catch {
    return '';
  }
}

/** Follows a session. `received` gets the channel and the rest of each message, and `why` says how the session ended. */
function follow(
  socket: WebSocket,
  events: { opened: () => void; ended: (why: string) => void },
  received: (channel: number, message: Uint8Array) => void,
  why: () => string,
): void {
  let isOpen = false;
  socket.addEventListener('open', () => {
    isOpen = true;
    events.opened();
  });
  socket.addEventListener('message', ({ data }: MessageEvent<unknown>) => {
    if (!(data instanceof ArrayBuffer)) return;
    const message = new Uint8Array(data);
    const [channel = 0] = message;
    received(channel, message.subarray(1));
  });
  socket.addEventListener('close', ({ reason }) => {
    events.ended(isOpen ? why() || reason : REFUSED);
  });
}

/** Runs a command with a terminal in a container. */
export function exec(of: Name, container: string, command: string[], events: ExecEvents): Exec {
  const params = new URLSearchParams({ stdin: 'true', stdout: 'true', tty: 'true' });
  if (container !== '') params.set('container', container);
  for (const word of command) params.append('command', word);
  const socket = open(of, 'exec', params, PROTOCOLS);
  let why = '';
  const received = (channel: number, bytes: Uint8Array) => {
    if (channel === OUTPUT || channel === ERRORS) events.output(bytes);
    else if (channel === STATUS) why = endOf(bytes);
  };
  follow(socket, events, received, () => why);
  return {
    send: (typed) => write(socket, INPUT, new TextEncoder().encode(typed)),
    resize: (columns, rows) =>
      write(socket, SIZE, new TextEncoder().encode(JSON.stringify({ Width: columns, Height: rows }))),
    close: () => socket.close(),
  };
}

export interface PortEvents {
  opened: () => void;
  received: (bytes: Uint8Array) => void;
  ended: (why: string) => void;
}

export interface Connection {
  send: (bytes: Uint8Array) => void;
  close: () => void;
}

/** The protocol of forwarded ports: bytes on channel 0, errors on 1, each after two bytes with the port. */
const PORT_PROTOCOL = ['v4.channel.k8s.io'];
const PORT_BYTES = 2;

/** Connects to a port of a pod. */
export function connect(of: Name, port: number, events: PortEvents): Connection {
  const socket = open(
    of,
    'portforward',
    new URLSearchParams({ ports: String(port), port: String(port) }),
    PORT_PROTOCOL,
  );
  const begun = new Set<number>();
  let why = '';
  const received = (channel: number, message: Uint8Array) => {
    const bytes = message.subarray(begun.has(channel) ? 0 : PORT_BYTES);
    begun.add(channel);
    if (bytes.length === 0) return;
    if (channel === INPUT) events.received(bytes);
    else why += new TextDecoder().decode(bytes);
  };
  follow(socket, events, received, () => why);
  return { send: (bytes) => write(socket, INPUT, bytes), close: () => socket.close() };
}
