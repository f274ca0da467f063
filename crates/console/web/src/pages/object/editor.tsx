// Editing an object as YAML: what the server would make of it is shown before it is saved, and conflicts by their owners.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { ApiError, hasCode, told } from '../../api/client';
import { apply, readObject, replace, type Write } from '../../api/objects';
import type { JsonObject, KubeObject } from '../../api/types';
import { editedFields, withChanges } from '../../lib/diff';
import { asJson, shown, wanted } from '../../lib/objects';
import { announce } from '../../ui/announce';
import { DiffView } from '../../ui/diff-view';
import { Problem } from '../../ui/problem';
import { Conflicts, type Conflict, conflictsOf, mergeConflicts } from './conflicts';
import type { Subject } from './object';

type Mode = 'replace' | 'apply';

interface Preview {
  before: string;
  after: string;
  warnings: string[];
}

interface Refused {
  error: unknown;
  conflicts: Conflict[];
  /** The newest state, where somebody else has written meanwhile. */
  newest: KubeObject | null;
}

const writer = () => import('../../yaml');

export function Editor({ subject }: { subject: Subject }) {
  const { resource, of } = subject;
  const [base, setBase] = useState(subject.object);
  const [text, setText] = useState<string | null>(null);
  const [mode, setMode] = useState<Mode>('replace');
  const [preview, setPreview] = useState<Preview | null>(null);
  const [refused, setRefused] = useState<Refused | null>(null);
  const [busy, setBusy] = useState(false);
  const area = useRef<HTMLTextAreaElement>(null);
  const outcome = useRef<HTMLDivElement>(null);
  const isNewer = subject.object.metadata.resourceVersion !== base.metadata.resourceVersion;

  const show = async (object: unknown) => {
    const { toYaml } = await writer();
    setText(toYaml(object));
    setPreview(null);
  };
  useEffect(() => {
    void show(shown(base));
    // The text is the user's from then on.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, []);
  useEffect(() => area.current?.focus(), [text === null]); // eslint-disable-line react-hooks/exhaustive-deps

  useEffect(() => {
    if (preview !== null || refused !== null) outcome.current?.scrollIntoView({ block: 'center' });
  }, [preview, refused]);

  const parsed = async (): Promise<JsonObject> => (await writer()).fromYaml(text ?? '');

  const write = async (dryRun: boolean, force: boolean) => {
    setBusy(true);
    setRefused(null);
    try {
      const object = await parsed();
      const target: Write = { resource, of, dryRun };
      const made = await (mode === 'replace' ? replace(target, object) : apply(target, wanted(object), force));
      if (dryRun) {
        const { toYaml } = await writer();
        const now = await readObject(resource, of);
        setPreview({ before: toYaml(shown(now)), after: toYaml(quiet(made.object, now)), warnings: made.warnings });
      } else {
        announce(`${of.name} is saved`);
        setBase(made.object);
        await show(shown(made.object));
        made.warnings.forEach((warning) => announce(warning));
      }
    } catch (error) {
      setPreview(null);
      setRefused(await refusal(error));
    } finally {
      setBusy(false);
    }
  };

  const refusal = async (error: unknown): Promise<Refused> => {
    if (!hasCode(error, 409)) return { error, conflicts: [], newest: null };
    const object = await parsed();
    const newest = await readObject(resource, of).catch(() => null);
    if (newest === null) return { error, conflicts: [], newest };
    const conflicts =
      mode === 'apply' ? conflictsOf(error, asJson(newest), object) : mergeConflicts(asJson(base), newest, object);
    return { error, conflicts, newest };
  };

  /** Takes over what others have changed, and puts one's own changes on top. */
  const merge = async (newest: KubeObject) => {
    const own = editedFields(asJson(shown(base)), await parsed());
    setBase(newest);
    setRefused(null);
    await show(withChanges(asJson(shown(newest)), own));
  };
  /** Gives up the fields that others own. */
  const giveUp = async (conflicts: Conflict[]) => {
    const object = await parsed();
    const theirs = conflicts.map(({ path, theirs }) => ({ path, before: undefined, after: theirs }));
    setRefused(null);
    await show(withChanges(object, theirs));
  };

  if (text === null) return <p class="loading">Loading…</p>;
  return (
    <div class="editor">
      <fieldset class="modes">
        <legend class="hidden">How it is saved</legend>
        <Choice
          mode="replace"
          now={mode}
          onChoose={setMode}
          text="Replace"
          hint="in place of the state that was read"
        />
        <Choice mode="apply" now={mode} onChoose={setMode} text="Server-side apply" hint="own what the text says" />
      </fieldset>
      {isNewer && refused === null && (
        <p class="notice" role="status">
          It has changed since you began.{' '}
          <button type="button" class="quiet" onClick={() => void merge(subject.object)}>
            Take the changes over into the text
          </button>
        </p>
      )}
      <textarea
        ref={area}
        class="code"
        aria-label="The object as YAML"
        spellcheck={false}
        autocomplete="off"
        autocapitalize="off"
        rows={Math.max(12, text.split('\n').length + 1)}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setPreview(null);
        }}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
            event.preventDefault();
            void write(preview === null, false);
          }
        }}
      />
      <div class="buttons">
        <button
          type="button"
          class={preview === null ? 'main' : ''}
          disabled={busy}
          onClick={() => void write(true, false)}
        >
          Show what would change
        </button>
        <button
          type="button"
          class={preview === null ? '' : 'main'}
          disabled={busy}
          onClick={() => void write(false, false)}
        >
          Save
        </button>
        <button
          type="button"
          disabled={busy}
          onClick={() => {
            setBase(subject.object);
            setRefused(null);
            void show(shown(subject.object));
          }}
        >
          Begin anew
        </button>
        <small class="muted">Ctrl+Enter shows, then saves</small>
      </div>
      <div ref={outcome} />
      {refused !== null && (
        <Refusal
          refused={refused}
          mode={mode}
          onMerge={(newest) => void merge(newest)}
          onForce={() => void write(false, true)}
          onGiveUp={(conflicts) => void giveUp(conflicts)}
        />
      )}
      {preview !== null && (
        <section aria-label="What would change" class="preview">
          <h2>What would change</h2>
          {preview.warnings.map((warning) => (
            <p key={warning} class="notice">
              {warning}
            </p>
          ))}
          <DiffView before={preview.before} after={preview.after} label="What would change" />
        </section>
      )}
    </div>
  );
}

/** What a rehearsal says, without what every write changes. */
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

interface RefusalProps {
  refused: Refused;
  mode: Mode;
  onMerge: (newest: KubeObject) => void;
  onForce: () => void;
  onGiveUp: (conflicts: Conflict[]) => void;
}

function Refusal({ refused, mode, onMerge, onForce, onGiveUp }: RefusalProps) {
  const { error, conflicts, newest } = refused;
  const isSyntax = !(error instanceof ApiError);
  const heading = useMemo(() => (isSyntax ? `The text can't be read: ${told(error)}` : ''), [error, isSyntax]);
  if (isSyntax) {
    return (
      <p class="problem" role="alert">
        {heading}
      </p>
    );
  }
  if (newest === null) return <Problem error={error} />;
  return (
    <Problem error={error}>
      <Conflicts conflicts={conflicts} />
      <div class="buttons">
        {mode === 'replace' ? (
          <button type="button" class="main" onClick={() => onMerge(newest)}>
            Take their changes over, and keep mine
          </button>
        ) : (
          <>
            <button type="button" class="main" onClick={() => onGiveUp(conflicts)}>
              Leave these fields to them
            </button>
            <button type="button" class="danger" onClick={onForce}>
              Take the fields over
            </button>
          </>
        )}
      </div>
    </Problem>
  );
}
