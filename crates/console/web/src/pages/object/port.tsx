// Requests to a port of the pod, over a connection that the server forwards to the pod's own network.
//
// A browser can't listen on a port, as kubectl does. Answers are shown as text and never as a page.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { connect, type Connection } from '../../api/sessions';
import { quoted } from '../../lib/commands';
import { saveBytes } from '../../lib/files';
import {
  type HttpRequest,
  type HttpResponse,
  joined,
  METHODS,
  requestBytes,
  responseOf,
  textOf,
  wrongIn,
} from '../../lib/http';
import { at, text } from '../../lib/objects';
import { bytes as bytesText } from '../../lib/metrics';
import { visible } from '../../lib/visible';
import { copy } from '../../ui/copy';
import { Icon } from '../../ui/icon';
import { Status } from '../../ui/status';
import type { Subject } from './object';

/** How many bytes of an answer are kept, and how long it is waited for, in milliseconds. */
const MOST = 4 << 20;
const LONGEST = 30_000;
/** After how long without bytes an answer is looked at, in milliseconds. */
const RESTS = 40;
/** How many characters of a body are shown. */
const SHOWN = 200_000;

interface Port {
  number: number;
  name: string;
}

/** The ports that the containers name. */
function portsOf(pod: unknown): Port[] {
  const list = (value: unknown) => (Array.isArray(value) ? (value as unknown[]) : []);
  const ports = list(at(pod, 'spec', 'containers')).flatMap((container) =>
    list(at(container, 'ports')).map((port) => ({
      number: Number(text(at(port, 'containerPort'))),
      name: text(at(port, 'name')) || text(at(container, 'name')),
    })),
  );
  return ports.filter((one) => isPort(one.number));
}

function isPort(number: number): boolean {
  return Number.isInteger(number) && number > 0 && number < 65_536;
}

interface Answer {
  state: 'none' | 'waits' | 'done';
  bytes: Uint8Array;
  milliseconds: number;
  why: string;
}

const NO_ANSWER: Answer = { state: 'none', bytes: new Uint8Array(), milliseconds: 0, why: '' };

interface Asked {
  port: number;
  bytes: Uint8Array;
  /** Whether an answer is whole, so that nothing more is waited for. */
  isWhole: (bytes: Uint8Array) => boolean;
}

/** One connection at a time: sends bytes, and gathers what comes back. */
function useConnection({ of }: Subject): { answer: Answer; ask: (asked: Asked) => void; stop: () => void } {
  const [answer, setAnswer] = useState<Answer>(NO_ANSWER);
  const now = useRef<{ stop: () => void } | null>(null);
  useEffect(() => () => now.current?.stop(), []);
  const ask = ({ port, bytes, isWhole }: Asked) => {
    now.current?.stop();
    const begun = performance.now();
    const parts: Uint8Array[] = [];
    let resting: ReturnType<typeof setTimeout> | undefined;
    let length = 0;
    let connection: Connection | null = null;
    let isOver = false;
    const settle = (why: string) => {
      if (isOver) return;
      isOver = true;
      clearTimeout(timer);
      clearTimeout(resting);
      connection?.close();
      setAnswer({ state: 'done', bytes: joined(parts), milliseconds: performance.now() - begun, why });
    };
    const timer = setTimeout(() => settle(`Nothing more came within ${LONGEST / 1000} seconds.`), LONGEST);
    setAnswer({ ...NO_ANSWER, state: 'waits' });
    connection = connect(of, port, {
      opened: () => connection?.send(bytes),
      received: (more) => {
        if (isOver) return;
        parts.push(more);
        length += more.length;
        if (length > MOST) settle(`Only the first ${bytesText(MOST)} are kept.`);
        // Some servers keep the connection open after a whole answer.
        clearTimeout(resting);
        resting = setTimeout(() => isWhole(joined(parts)) && settle(''), RESTS);
      },
      ended: settle,
    });
    now.current = { stop: () => settle('The connection was closed here.') };
  };
  return { answer, ask, stop: () => now.current?.stop() };
}

export function PortPage({ subject }: { subject: Subject }) {
  const { object, of } = subject;
  const ports = useMemo(() => portsOf(object), [object]);
  const [port, setPort] = useState(() => String(ports[0]?.number ?? 8080));
  const [mode, setMode] = useState<'http' | 'text'>('http');
  const { answer, ask, stop } = useConnection(subject);
  const [sent, setSent] = useState<{ mode: 'http' | 'text'; method: string }>({ mode: 'http', method: 'GET' });
  const number = Number(port);
  const waits = answer.state === 'waits';
  return (
    <div class="port-page">
      <div class="toolbar">
        <label>
          Port{' '}
          <input
            type="text"
            inputMode="numeric"
            list="ports-of-pod"
            class="port-field"
            autocomplete="off"
            aria-invalid={!isPort(number)}
            value={port}
            onInput={(event) => setPort(event.currentTarget.value.trim())}
          />
        </label>
        <datalist id="ports-of-pod">
          {ports.map((one) => (
            <option key={`${one.number}/${one.name}`} value={String(one.number)}>
              {visible(one.name)}
            </option>
          ))}
        </datalist>
        {ports.map((one) => (
          <button
            type="button"
            key={`${one.number}/${one.name}`}
            aria-pressed={port === String(one.number)}
            onClick={() => setPort(String(one.number))}
          >
            {one.number} <small>{visible(one.name)}</small>
          </button>
        ))}
        <span class="apart" />
        <span class="choice" role="group" aria-label="What is sent">
          <button type="button" aria-pressed={mode === 'http'} onClick={() => setMode('http')}>
            HTTP
          </button>
          <button type="button" aria-pressed={mode === 'text'} onClick={() => setMode('text')}>
            Text
          </button>
        </span>
        <button
          type="button"
          title="Forwards the port to your machine"
          onClick={() =>
            copy(
              `kubectl port-forward -n ${quoted(of.namespace)} ${quoted(`pod/${of.name}`)} ${number}:${number}`,
              'The command',
            )
          }
        >
          <Icon name="copy" /> Copy as kubectl
        </button>
      </div>
      {!isPort(number) && <p role="alert">A port is a number from 1 to 65535.</p>}
      {mode === 'http' ? (
        <HttpForm
          host={`localhost:${number}`}
          waits={waits}
          ready={isPort(number)}
          onStop={stop}
          onSend={(request) => {
            const isWhole = (bytes: Uint8Array) => responseOf(bytes, request.method)?.isWhole === true;
            setSent({ mode: 'http', method: request.method });
            ask({ port: number, bytes: requestBytes(request), isWhole });
          }}
        />
      ) : (
        <TextForm
          waits={waits}
          ready={isPort(number)}
          onStop={stop}
          onSend={(bytes) => {
            setSent({ mode: 'text', method: '' });
            ask({ port: number, bytes, isWhole: () => false });
          }}
        />
      )}
      {answer.state === 'none' ? (
        <p class="muted">
          The server connects to this port in the network of the pod, as <code>kubectl port-forward</code> does. Answers
          are shown as text.
        </p>
      ) : (
        <Shown answer={answer} sent={sent} />
      )}
    </div>
  );
}

interface FormProps {
  waits: boolean;
  ready: boolean;
  onStop: () => void;
}

function SendButton({ waits, ready, onStop }: FormProps) {
  return waits ? (
    <button type="button" onClick={onStop}>
      Stop
    </button>
  ) : (
    <button type="submit" class="main" disabled={!ready}>
      Send
    </button>
  );
}

function HttpForm(props: FormProps & { host: string; onSend: (request: HttpRequest) => void }) {
  const [method, setMethod] = useState('GET');
  const [path, setPath] = useState('/');
  const [headers, setHeaders] = useState('');
  const [body, setBody] = useState('');
  const takesBody = !['GET', 'HEAD'].includes(method);
  const request = { method, path, host: props.host, headers, body: takesBody ? body : '' };
  const wrong = wrongIn(request);
  return (
    <form
      class="port-form"
      onSubmit={(event) => {
        event.preventDefault();
        if (wrong === '' && props.ready) props.onSend(request);
      }}
    >
      <div class="request-line">
        <select aria-label="Method" value={method} onChange={(event) => setMethod(event.currentTarget.value)}>
          {METHODS.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
        <input
          type="text"
          aria-label="Path"
          spellcheck={false}
          autocomplete="off"
          value={path}
          onInput={(event) => setPath(event.currentTarget.value)}
        />
        <SendButton {...props} />
      </div>
      {wrong !== '' && <p role="alert">{visible(wrong)}</p>}
      <details open={takesBody}>
        <summary>Header fields{takesBody && ' and body'}</summary>
        <label class="stacked">
          Header fields
          <textarea
            rows={2}
            spellcheck={false}
            placeholder="Accept: application/json"
            value={headers}
            onInput={(event) => setHeaders(event.currentTarget.value)}
          />
        </label>
        {takesBody && (
          <label class="stacked">
            Body
            <textarea
              rows={5}
              spellcheck={false}
              value={body}
              onInput={(event) => setBody(event.currentTarget.value)}
            />
          </label>
        )}
      </details>
    </form>
  );
}

function TextForm(props: FormProps & { onSend: (bytes: Uint8Array) => void }) {
  const [typed, setTyped] = useState('');
  return (
    <form
      class="port-form"
      onSubmit={(event) => {
        event.preventDefault();
        if (props.ready) props.onSend(new TextEncoder().encode(`${typed}\r\n`));
      }}
    >
      <label class="stacked">
        Text to send. Its end is a line end.
        <textarea
          rows={3}
          spellcheck={false}
          placeholder="PING"
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
      </label>
      <div class="buttons">
        <SendButton {...props} />
      </div>
    </form>
  );
}

function Shown({ answer, sent }: { answer: Answer; sent: { mode: 'http' | 'text'; method: string } }) {
  const response = useMemo(
    () => (sent.mode === 'http' ? responseOf(answer.bytes, sent.method) : null),
    [answer.bytes, sent],
  );
  const waits = answer.state === 'waits';
  const isCut = response !== null && !response.isWhole && answer.why !== '';
  return (
    <section class="panel port-answer" aria-label="Answer" aria-busy={waits}>
      <header>
        <h2>Answer</h2>
        {response !== null && (
          <Status word={visible(response.status)} tone={/^[23]/.test(response.status) ? 'good' : 'bad'} />
        )}
        {!waits && (
          <small class="muted">
            {bytesText(answer.bytes.length)} in {Math.round(answer.milliseconds)} ms
          </small>
        )}
      </header>
      <p role="status">
        {waits && 'Waiting…'}
        {!waits && (response === null || isCut) && visible(answer.why)}
        {!waits && answer.bytes.length === 0 && answer.why === '' && 'The other side closed without an answer.'}
      </p>
      {response !== null && <Headers response={response} />}
      <Body bytes={response === null ? answer.bytes : response.body} />
    </section>
  );
}

function Headers({ response }: { response: HttpResponse }) {
  return (
    <details>
      <summary>{response.headers.length} header fields</summary>
      <dl class="facts">
        {response.headers.map(([name, value], place) => (
          <div key={place}>
            <dt>{visible(name)}</dt>
            <dd>{visible(value)}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

/** JSON is indented; other texts are as they are. */
function readable(body: string): string {
  if (!/^\s*[[{]/.test(body)) return body;
  try {
    return JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    return body;
  }
}

function Body({ bytes }: { bytes: Uint8Array }) {
  const shown = useMemo(() => {
    const found = textOf(bytes);
    return found === null ? null : visible(readable(found));
  }, [bytes]);
  if (bytes.length === 0) return null;
  return (
    <>
      {shown === null ? (
        <p class="muted">These bytes are no text.</p>
      ) : (
        <pre class="body" tabIndex={0} aria-label="Body">
          {shown.slice(0, SHOWN)}
        </pre>
      )}
      {shown !== null && shown.length > SHOWN && <p class="muted">Only the beginning is shown.</p>}
      <div class="buttons">
        <button type="button" onClick={() => saveBytes('answer.bin', bytes)}>
          Save as a file
        </button>
        {shown !== null && (
          <button type="button" onClick={() => copy(textOf(bytes) ?? '', 'The answer')}>
            Copy
          </button>
        )}
      </div>
    </>
  );
}
