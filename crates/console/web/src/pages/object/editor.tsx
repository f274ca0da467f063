// Edits an object as YAML. A dry run shows the server's result before the save, and conflicts are shown by owner.

import { useEffect, useRef, useState } from 'preact/hooks';
import { hasCode } from '../../api/client';
import { apply, MANAGER, readObject, replace, type Write } from '../../api/objects';
import { readShape } from '../../api/schema';
import { useSchemaFields } from '../../api/schema-fields';
import type { JsonObject, KubeObject } from '../../api/types';
import { applied } from '../../lib/apply';
import { stepsIn, withValue } from '../../lib/fieldpath';
import { merge, type Merged } from '../../lib/merge';
import { asJson, isLater, shown } from '../../lib/objects';
import { objectOf, yamlOf } from '../../lib/text';
import { unseenIn } from '../../lib/visible';
import { announce } from '../../ui/announce';
import { CodeEditor } from '../../ui/code-editor';
import { Dialog } from '../../ui/dialog';
import { Problem } from '../../ui/problem';
import { DiffView } from '../../ui/diff-view';
import { type Conflict, conflictsOf, mergeConflicts } from './conflicts';
import { type Mode, useEditing } from './editing';
import type { Subject } from './object';
import { type Places, PlacesRefused, Refusal, type Refused } from './refusal';

interface Preview {
  before: string;
  after: string;
  warnings: string[];
}

/** The outcome of the last action. */
type Outcome =
  | { kind: 'preview'; preview: Preview }
  | { kind: 'refused'; refused: Refused }
  | { kind: 'places'; places: Places }
  | { kind: 'kept'; paths: string[] };

/** How many characters that can't be seen are named. */
const MOST_UNSEEN = 10;

export function Editor({ subject }: { subject: Subject }) {
  const { resource, of } = subject;
  const editing = useEditing(subject);
  const { text, base, mode, begin } = editing;
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  const [busy, setBusy] = useState(false);
  const [asksAnew, setAsksAnew] = useState(false);
  const fields = useSchemaFields(text ?? '');
  const below = useRef<HTMLDivElement>(null);
  const isNewer = isLater(subject.object.metadata.resourceVersion ?? '', base.metadata.resourceVersion ?? '');

  useEffect(() => {
    if (outcome !== null) below.current?.scrollIntoView({ block: 'center' });
  }, [outcome]);

  const shape = () => readShape(resource, base.kind);

  /** Sends the text. Null if it holds changes that can't be sent, which are then shown. */
  const send = async (object: JsonObject, dryRun: boolean, force: boolean) => {
    const target: Write = { resource, of, dryRun };
    if (mode === 'replace') return replace(target, object);
    const { object: sent, unsayable } = applied(base, object, subject.object, MANAGER, await shape());
    if (unsayable.length === 0) return apply(target, sent, force);
    const heading = 'Server-side apply can not say these changes: save them by Replace';
    setOutcome({ kind: 'places', places: { heading, places: unsayable, newest: null } });
    return null;
  };

  /** Does something with the text, which stays as it is meanwhile. */
  const act = async (run: () => Promise<void>, failed: (error: unknown) => Promise<Refused>) => {
    setBusy(true);
    try {
      await run();
    } catch (error) {
      setOutcome({ kind: 'refused', refused: await failed(error) });
    } finally {
      setBusy(false);
    }
  };
  const plain = (error: unknown) => Promise.resolve({ error, conflicts: [], newest: null });

  const write = (dryRun: boolean, force: boolean) => {
    setOutcome(null);
    return act(async () => {
      const made = await send(await objectOf(text ?? ''), dryRun, force);
      if (made === null) return;
      if (dryRun) {
        const now = await readObject(resource, of);
        const [before, after] = [await yamlOf(shown(now)), await yamlOf(quiet(made.object, now))];
        setOutcome({ kind: 'preview', preview: { before, after, warnings: made.warnings } });
      } else {
        await begin(made.object);
        announce(`${of.name} is saved`);
        made.warnings.forEach((warning) => announce(warning));
      }
    }, refusal);
  };

  const refusal = async (error: unknown): Promise<Refused> => {
    if (!hasCode(error, 409)) return plain(error);
    try {
      const object = await objectOf(text ?? '');
      const newest = await readObject(resource, of);
      const conflicts =
        mode === 'apply'
          ? conflictsOf(error, asJson(newest), object)
          : mergeConflicts(await mergedWith(newest), newest);
      return { error, conflicts, newest };
    } catch {
      return plain(error);
    }
  };

  const mergedWith = async (newest: KubeObject): Promise<Merged> =>
    merge(asJson(base), await objectOf(text ?? ''), asJson(shown(newest)), await shape());

  /** Takes changes of others over below those of the text. Changes that have no place are left out if `without` names them. */
  const take = (newest: KubeObject, without: string[] = []) =>
    act(async () => {
      const merged = await mergedWith(newest);
      if (merged.unplaced.some(({ path }) => !without.includes(path))) {
        const heading = 'These changes of yours have no place in what others have made of the object';
        setOutcome({ kind: 'places', places: { heading, places: merged.unplaced, newest } });
        return;
      }
      await begin(newest, await yamlOf(merged.value));
      setOutcome(merged.kept.length === 0 ? null : { kind: 'kept', paths: merged.kept });
    }, plain);

  /** Gives up the fields that others own. */
  const giveUp = (conflicts: Conflict[]) =>
    act(async () => {
      let object = asJson((await objectOf(text ?? '')) as unknown as KubeObject);
      const places: Places['places'] = [];
      for (const { path, theirs } of conflicts) {
        const steps = stepsIn(object, path);
        if (steps === null) places.push({ path, why: 'is not in the text' });
        else object = withValue(object, steps, theirs);
      }
      editing.setText(await yamlOf(object));
      const heading = 'These fields are not found in the text, and are left as they are';
      setOutcome(places.length === 0 ? null : { kind: 'places', places: { heading, places, newest: null } });
    }, plain);

  const beginAnew = () => {
    setAsksAnew(false);
    setOutcome(null);
    void begin(subject.object);
  };

  if (editing.failed !== null) return <Problem error={editing.failed} />;
  if (text === null) return <p class="loading">Loading…</p>;
  const isSeen = outcome?.kind === 'preview';
  const unseen = unseenIn(text, MOST_UNSEEN);
  return (
    <div class="editor">
      <fieldset class="modes">
        <legend class="hidden">How it is saved</legend>
        <Choice
          mode="replace"
          now={mode}
          onChoose={editing.setMode}
          text="Replace"
          hint="in place of the state that was read"
        />
        <Choice
          mode="apply"
          now={mode}
          onChoose={editing.setMode}
          text="Server-side apply"
          hint="own the fields that you change"
        />
      </fieldset>
      {editing.isDraft && (
        <p class="notice" role="status">
          This is your draft of before, which is not saved.{' '}
          <button type="button" class="quiet" onClick={() => setAsksAnew(true)}>
            Throw it away
          </button>
        </p>
      )}
      {isNewer && outcome === null && (
        <p class="notice" role="status">
          It has changed since you began.{' '}
          <button type="button" class="quiet" disabled={busy} onClick={() => void take(subject.object)}>
            Take the changes over into the text
          </button>
        </p>
      )}
      <CodeEditor
        label="The object as YAML"
        value={text}
        readOnly={busy}
        fields={fields}
        onInput={(next) => {
          editing.setText(next);
          if (isSeen) setOutcome(null);
        }}
        onSubmit={() => {
          if (!busy) void write(!isSeen, false);
        }}
      />
      {unseen.length > 0 && (
        <p class="notice">
          The text holds characters that can&apos;t be seen, or that turn the order of others: {unseen.join(', ')}
        </p>
      )}
      <div class="buttons">
        <button type="button" class={isSeen ? '' : 'main'} disabled={busy} onClick={() => void write(true, false)}>
          Show what would change
        </button>
        <button type="button" class={isSeen ? 'main' : ''} disabled={busy} onClick={() => void write(false, false)}>
          Save
        </button>
        <button type="button" disabled={busy} onClick={() => (editing.isChanged ? setAsksAnew(true) : beginAnew())}>
          Begin anew
        </button>
        <small class="muted">Ctrl+Enter shows, then saves</small>
      </div>
      <div ref={below} />
      {outcome?.kind === 'refused' && (
        <Refusal
          refused={outcome.refused}
          mode={mode}
          busy={busy}
          onMerge={(newest) => void take(newest)}
          onForce={() => void write(false, true)}
          onGiveUp={(conflicts) => void giveUp(conflicts)}
        />
      )}
      {outcome?.kind === 'places' && (
        <PlacesRefused refused={outcome.places} busy={busy} onLeaveOut={(newest, paths) => void take(newest, paths)} />
      )}
      {outcome?.kind === 'kept' && (
        <p class="notice" role="status">
          Others have changed these too, and yours is in the text: <code>{outcome.paths.join(', ')}</code>
        </p>
      )}
      {outcome?.kind === 'preview' && <Changes preview={outcome.preview} />}
      {asksAnew && (
        <Dialog title="Throw away what you wrote?" onClose={() => setAsksAnew(false)}>
          <p>The text becomes that of the object as it is now.</p>
          <div class="buttons">
            <button type="button" autofocus onClick={() => setAsksAnew(false)}>
              Keep it
            </button>
            <button type="button" class="danger" onClick={beginAnew}>
              Throw it away
            </button>
          </div>
        </Dialog>
      )}
    </div>
  );
}

function Changes({ preview }: { preview: Preview }) {
  return (
    <section aria-label="What would change" class="preview">
      <h2>What would change</h2>
      {preview.warnings.map((warning) => (
        <p key={warning} class="notice">
          {warning}
        </p>
      ))}
      <DiffView before={preview.before} after={preview.after} label="What would change" />
    </section>
  );
}

/** What a dry run answers, without what every write changes. */
function quiet(made: KubeObject, now: KubeObject): KubeObject {
  const object = shown(made);
  object.metadata.resourceVersion = now.metadata.resourceVersion ?? '';
  return object;
}

interface ChoiceProps {
  mode: Mode;
  now: Mode;
  text: string;
  hint: string;
  onChoose: (mode: Mode) => void;
}

function Choice({ mode, now, text, hint, onChoose }: ChoiceProps) {
  return (
    <label>
      <input type="radio" name="mode" value={mode} checked={mode === now} onChange={() => onChoose(mode)} /> {text}{' '}
      <small>{hint}</small>
    </label>
  );
}
