// A shell in a container of the pod. The terminal is loaded when it is opened.

import { useEffect, useRef, useState } from 'preact/hooks';
import { type Exec, exec } from '../../api/sessions';
import { told } from '../../api/client';
import { visible } from '../../lib/visible';
import { containersOf, usualContainer } from './containers-of';
import type { Subject } from './object';

/** Tries the shells that images have. */
const SHELL = ['sh', '-c', 'if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi'];

export function Shell({ subject }: { subject: Subject }) {
  const { object, of } = subject;
  const [container, setContainer] = useState(() => usualContainer(object));
  const [attempt, setAttempt] = useState(0);
  const [state, setState] = useState<'closed' | 'opening' | 'open'>('closed');
  const [why, setWhy] = useState('');
  const host = useRef<HTMLDivElement>(null);
  const { namespace, name } = of;
  useEffect(() => {
    const element = host.current;
    if (attempt === 0 || element === null) return;
    let session: Exec | null = null;
    const ends: (() => void)[] = [];
    let isOver = false;
    setState('opening');
    setWhy('');
    const start = async () => {
      const { openTerminal } = await import('../../terminal');
      if (isOver) return;
      const terminal = openTerminal(
        element,
        (typed) => session?.send(typed),
        (columns, rows) => session?.resize(columns, rows),
      );
      const observer = new ResizeObserver(terminal.fit);
      observer.observe(element);
      ends.push(() => {
        observer.disconnect();
        terminal.dispose();
      });
      terminal.fit();
      session = exec({ namespace, name }, container, SHELL, {
        opened: () => {
          setState('open');
          const { columns, rows } = terminal.size();
          session?.resize(columns, rows);
          terminal.focus();
        },
        output: terminal.write,
        ended: (reason) => {
          if (isOver) return;
          setState('closed');
          setWhy(reason === '' ? 'The session has ended.' : reason);
        },
      });
    };
    start().catch((error: unknown) => {
      setState('closed');
      setWhy(told(error));
    });
    return () => {
      isOver = true;
      session?.close();
      ends.forEach((end) => end());
    };
  }, [attempt, container, namespace, name]);
  return (
    <div class="shell-page">
      <div class="toolbar">
        <label>
          Container{' '}
          <select
            value={container}
            disabled={state === 'open'}
            onChange={(event) => setContainer(event.currentTarget.value)}
          >
            {containersOf(object).map((one) => (
              <option key={one} value={one}>
                {visible(one)}
              </option>
            ))}
          </select>
        </label>
        {state === 'closed' ? (
          <button type="button" class="main" onClick={() => setAttempt(attempt + 1)}>
            {attempt === 0 ? 'Open a shell' : 'Open another one'}
          </button>
        ) : (
          <button type="button" onClick={() => setAttempt(0)}>
            Close
          </button>
        )}
        <span role="status" class="muted">
          {state === 'opening' ? 'Opening…' : state === 'open' ? 'Open' : visible(why)}
        </span>
      </div>
      <div ref={host} class="terminal" data-typing data-state={state} hidden={attempt === 0} />
      {attempt === 0 && (
        <p class="muted">
          A shell runs in the container with the rights of its user. What you type there is seen by the kubelet and by
          an audit log, if it records sessions.
        </p>
      )}
    </div>
  );
}
