// A session in a container over a WebSocket, in the protocols of Kubernetes: input, output, errors and the size.
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

function protocols(): string[] {
  const token = session.get().credentials?.token ?? '';
  return token === '' ? PROTOCOLS : [...PROTOCOLS, `base64url.bearer.authorization.k8s.io.${base64url(token)}`];
}

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

/** Runs a command with a terminal in a container. */
export function exec(of: Name, container: string, command: string[], events: ExecEvents): Exec {
  const params = new URLSearchParams({ stdin: 'true', stdout: 'true', tty: 'true' });
  if (container !== '') params.set('container', container);
  for (const word of command) params.append('command', word);
  const path = `${objectPath(PODS, of.namespace, of.name, 'exec')}?${params.toString()}`;
  const url = new URL(path, window.location.href);
  url.protocol = url.protocol === 'http:' ? 'ws:' : 'wss:';
  const socket = new WebSocket(url, protocols());
  socket.binaryType = 'arraybuffer';
  let isOpen = false;
  let why = '';
  const write = (channel: number, bytes: Uint8Array) => {
    if (socket.readyState !== WebSocket.OPEN) return;
    const message = new Uint8Array(bytes.length + 1);
    message[0] = channel;
    message.set(bytes, 1);
    socket.send(message);
  };
  socket.addEventListener('open', () => {
    isOpen = true;
    events.opened();
  });
  socket.addEventListener('message', ({ data }: MessageEvent<unknown>) => {
    if (!(data instanceof ArrayBuffer)) return;
    const message = new Uint8Array(data);
    const [channel] = message;
    const bytes = message.subarray(1);
    if (channel === OUTPUT || channel === ERRORS) events.output(bytes);
    else if (channel === STATUS) why = endOf(bytes);
  });
  socket.addEventListener('close', ({ reason }) => {
    const refused = 'The server did not open a session: the pod may not run, its node may be away, or you may not.';
    events.ended(isOpen ? why || reason : refused);
  });
  return {
    send: (typed) => write(INPUT, new TextEncoder().encode(typed)),
    resize: (columns, rows) => write(SIZE, new TextEncoder().encode(JSON.stringify({ Width: columns, Height: rows }))),
    close: () => socket.close(),
  };
}
