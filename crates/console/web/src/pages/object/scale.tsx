// How many replicas there should be.

import { useEffect, useState } from 'preact/hooks';
import { readScale, scale } from '../../api/objects';
import { announce } from '../../ui/announce';
import { Dialog } from '../../ui/dialog';
import { Problem } from '../../ui/problem';
import type { Subject } from './object';

export function ScaleDialog({ subject, onClose }: { subject: Subject; onClose: () => void }) {
  const { resource, of } = subject;
  const [now, setNow] = useState<number | null>(null);
  const [wanted, setWanted] = useState(0);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    readScale(resource, of)
      .then((replicas) => {
        setNow(replicas);
        setWanted(replicas);
      })
      .catch(setError);
  }, [resource, of]);
  const save = async () => {
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
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        <label>
          Replicas
          <span class="stepper">
            <button type="button" aria-label="One less" onClick={() => setWanted(Math.max(0, wanted - 1))}>
              −
            </button>
            <input
              type="number"
              min={0}
              autofocus
              disabled={now === null}
              value={wanted}
              onInput={(event) => setWanted(Math.max(0, Math.floor(Number(event.currentTarget.value))))}
            />
            <button type="button" aria-label="One more" onClick={() => setWanted(wanted + 1)}>
              +
            </button>
          </span>
        </label>
        {now !== null && <p class="muted">There should be {now} now.</p>}
        <button type="submit" class="main" disabled={busy || now === null || wanted === now}>
          Scale
        </button>
      </form>
    </Dialog>
  );
}
