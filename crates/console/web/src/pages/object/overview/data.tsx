// The data of config maps and secrets. Values of secrets are hidden until they are asked for, and shown decoded.

import { useState } from 'preact/hooks';
import { at, text } from '../../../lib/objects';
import { visible } from '../../../lib/visible';
import { copy } from '../../../ui/copy';
import { Icon } from '../../../ui/icon';
import { Panel } from './blocks';

/** How many characters of a value are shown at first. */
const SHOWN = 4000;

/** The text that base64 stands for; null for bytes that are no text. */
export function decoded(base64: string): { text: string | null; bytes: number } {
  try {
    const bytes = Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
    try {
      return { text: new TextDecoder('utf-8', { fatal: true }).decode(bytes), bytes: bytes.length };
    } catch {
      return { text: null, bytes: bytes.length };
    }
  } catch {
    return { text: null, bytes: 0 };
  }
}

function Value({ name, value, hidden }: { name: string; value: string | null; hidden: boolean }) {
  const [shown, setShown] = useState(!hidden);
  const [all, setAll] = useState(false);
  const isLong = value !== null && value.length > SHOWN;
  return (
    <li class="entry">
      <div class="line-of">
        <code>{visible(name)}</code>
        <span class="spacer" />
        {hidden && (
          <button type="button" class="quiet" aria-expanded={shown} onClick={() => setShown(!shown)}>
            {shown ? 'Hide' : 'Show'}
          </button>
        )}
        {value !== null && (
          <button
            type="button"
            class="quiet"
            aria-label={`Copy ${name}`}
            title="Copy"
            onClick={() => copy(value, name)}
          >
            <Icon name="copy" />
          </button>
        )}
      </div>
      {!shown ? (
        <p class="muted">••••••••</p>
      ) : value === null ? (
        <p class="muted">Bytes that are no text.</p>
      ) : (
        <pre tabIndex={0}>{visible(isLong && !all ? value.slice(0, SHOWN) : value)}</pre>
      )}
      {shown && isLong && (
        <button type="button" class="quiet" onClick={() => setAll(!all)}>
          {all ? 'Show less' : `Show all ${value.length} characters`}
        </button>
      )}
    </li>
  );
}

export function Data({ object, isSecret }: { object: unknown; isSecret: boolean }) {
  const entries = (field: string) => Object.entries((at(object, field) ?? {}) as Record<string, unknown>);
  const plain = entries('data').map(([name, value]): [string, string | null] => [
    name,
    isSecret ? decoded(text(value)).text : text(value),
  ]);
  const binary = entries('binaryData').map(([name, value]): [string, string | null] => [
    name,
    decoded(text(value)).text,
  ]);
  const all = [...plain, ...binary];
  return (
    <Panel title={`Data (${all.length})`} wide>
      {all.length === 0 && <p class="muted">It holds nothing.</p>}
      <ul class="entries">
        {all.map(([name, value]) => (
          <Value key={name} name={name} value={value} hidden={isSecret} />
        ))}
      </ul>
    </Panel>
  );
}
