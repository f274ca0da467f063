// The number of replicas. Zero needs a confirmation.

import { useEffect, useRef, useState } from 'preact/hooks';
import { readScale, scale } from '../../api/objects';
import { MOST_REPLICAS, replicasOf } from '../../lib/replicas';
import { counted } from '../../lib/time';
import { announce } from '../../ui/announce';
import { Dialog } from '../../ui/dialog';
import { Problem } from '../../ui/problem';
import type { Subject } from './object';

export function ScaleDialog({ subject, onClose }: { subject: Subject; onClose: () => void }) {
  const { resource, of } = subject;
  const [now, setNow] = useState<number | null>(null);
  const [text, setText] = useState<string | null>(null);
  const [asks, setAsks] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    readScale(resource, of).then(setNow).catch(setError);
  }, [resource, of]);
  useEffect(() => {
    if (now !== null) field.current?.select();
  }, [now]);
  const typed = text ?? (now === null ? '' : String(now));
  const wanted = replicasOf(typed);
  const set = (next: string) => {
    setText(next);
    setAsks(false);
  };
  const save = async () => {
    if (wanted === null || wanted === now) return;
    if (wanted === 0 && !asks) {
      setAsks(true);
      return;
    }
    setBusy(true);
    try {
      await scale(resource, of, wanted);
      announce(`${of.name} is scaled to ${wanted}`);
      onClose();
    } catch (failed) {
      setError(failed);
      setBusy(false);
    }
  };
  return (
    <Dialog title={`Scale ${of.name}`} onClose={onClose}>
      {error !== null && <Problem error={error} />}
      <form
        class="scale"
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        <label>
          Replicas
          <span class="stepper">
            <button
              type="button"
              aria-label="One less"
              disabled={wanted === null || wanted === 0}
              onClick={() => set(String((wanted ?? 1) - 1))}
            >
              −
            </button>
            <input
              ref={field}
              type="text"
              inputMode="numeric"
              autocomplete="off"
              autofocus
              readOnly={busy}
              aria-invalid={now !== null && wanted === null}
              aria-describedby="replicas-hint"
              value={typed}
              onInput={(event) => set(event.currentTarget.value)}
            />
            <button
              type="button"
              aria-label="One more"
              disabled={wanted === null || wanted === MOST_REPLICAS}
              onClick={() => set(String((wanted ?? 0) + 1))}
            >
              +
            </button>
          </span>
        </label>
        <p class="muted" id="replicas-hint" role="status">
          {now !== null && `There should be ${now} now. `}
          {now !== null && wanted === null && `A whole number from 0 to ${counted(MOST_REPLICAS)} is wanted.`}
        </p>
        {asks && (
          <p class="notice" role="alert">
            With 0 replicas nothing of {of.name} runs. Press the button once more to have it so.
          </p>
        )}
        <button
          type="submit"
          class={wanted === 0 ? 'danger' : 'main'}
          disabled={busy || now === null || wanted === null || wanted === now}
        >
          {asks ? 'Scale to 0' : 'Scale'}
        </button>
      </form>
    </Dialog>
  );
}
