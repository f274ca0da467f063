// Creates or applies objects from YAML: several documents, a dry run with its differences, then the writes.

import { useEffect, useState } from 'preact/hooks';
import { applyOne, isConflict, type Outcome, plan, type Planned } from '../../api/apply';
import { told } from '../../api/client';
import { discovery } from '../../api/discovery';
import { session } from '../../api/session';
import { useSchemaFields } from '../../api/schema-fields';
import type { KubeObject } from '../../api/types';
import { objectHref } from '../../lib/links';
import { shown } from '../../lib/objects';
import { objectsOf, yamlOf } from '../../lib/text';
import { visible } from '../../lib/visible';
import { draftOf, dropDraft, keepDraft } from '../../state/drafts';
import { guardPage } from '../../state/router';
import { useStore } from '../../state/store';
import { announce } from '../../ui/announce';
import { CodeEditor } from '../../ui/code-editor';
import { DiffView } from '../../ui/diff-view';
import { useLatest } from '../../ui/latest';
import { Status } from '../../ui/status';
import { useNamespaces } from '../../ui/namespaces';

const DRAFT = 'apply';
const MOST_DOCUMENTS = 200;
/** The base of a text that is of no object. */
const NOTHING: KubeObject = { apiVersion: '', kind: '', metadata: { name: '' } };

const EXAMPLES: Record<string, string> = {
  Deployment: `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 2
  selector:
    matchLabels:
      app: web
  template:
    metadata:
      labels:
        app: web
    spec:
      containers:
        - name: web
          image: nginx:1.27
          ports:
            - containerPort: 80
`,
  Service: `apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  selector:
    app: web
  ports:
    - port: 80
      targetPort: 80
`,
  ConfigMap: `apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  level: info
`,
  Secret: `apiVersion: v1
kind: Secret
metadata:
  name: credentials
stringData:
  password: change-me
`,
  CronJob: `apiVersion: batch/v1
kind: CronJob
metadata:
  name: nightly
spec:
  schedule: "0 3 * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers:
            - name: work
              image: busybox:1.36
              command: ["sh", "-c", "date"]
`,
  Namespace: `apiVersion: v1
kind: Namespace
metadata:
  name: team-a
`,
};

interface Result {
  title: string;
  planned: Planned | null;
  outcome: Outcome | null;
  before: string;
  after: string;
  error: unknown;
  isDone: boolean;
}

const MADE_BY_SERVER = ['resourceVersion', 'uid', 'creationTimestamp', 'generation'];

/** An object without what the server alone writes, which would differ at each dry run. */
async function textOf(object: KubeObject | null): Promise<string> {
  if (object === null) return '';
  const found = shown(object);
  const own = Object.entries(found.metadata).filter(([name]) => !MADE_BY_SERVER.includes(name));
  return yamlOf({ ...found, metadata: Object.fromEntries(own) });
}

async function tried(planned: Planned, dryRun: boolean, force: boolean): Promise<Result> {
  const { resource, namespace, name } = planned;
  const title = `${resource.kind} ${namespace === '' ? '' : `${namespace}/`}${name}`;
  const nothing = { title, planned, outcome: null, before: '', after: '', error: null, isDone: false };
  try {
    const outcome = await applyOne(planned, dryRun, force);
    const [before, after] = [await textOf(outcome.before), await textOf(outcome.after)];
    return { ...nothing, outcome, before, after, isDone: !dryRun };
  } catch (error) {
    return { ...nothing, error };
  }
}

export function ApplyPage() {
  const { resources } = useStore(discovery);
  const user = useStore(session).user?.username ?? '';
  const namespaces = useNamespaces();
  const [text, setText] = useState(() => draftOf(user, DRAFT)?.text ?? '');
  const [results, setResults] = useState<Result[] | null>(null);
  const [problem, setProblem] = useState('');
  const [busy, setBusy] = useState(false);
  const [force, setForce] = useState(false);
  const latest = useLatest({ text, user });
  const fields = useSchemaFields(text);
  useEffect(() => {
    document.title = 'Create · keelson';
    const isUnsaved = () => latest.current.text.trim() !== '';
    const keep = () => {
      const { text: last, user: whose } = latest.current;
      if (last.trim() === '') dropDraft(whose, DRAFT);
      else if (session.get().user?.username === whose)
        keepDraft(whose, DRAFT, { text: last, mode: 'apply', base: NOTHING });
    };
    const release = guardPage(isUnsaved);
    window.addEventListener('pagehide', keep);
    return () => {
      keep();
      release();
      window.removeEventListener('pagehide', keep);
    };
  }, [latest]);
  const target = namespaces.join(',');
  // The results of one namespace say nothing about another.
  useEffect(() => setResults(null), [target]);
  const change = (next: string) => {
    setText(next);
    setResults(null);
    setForce(false);
    setProblem('');
  };
  const run = async (dryRun: boolean) => {
    setBusy(true);
    setProblem('');
    try {
      const objects = await objectsOf(text);
      if (objects.length === 0) throw new Error('The text has no object in it.');
      if (objects.length > MOST_DOCUMENTS) throw new Error(`At most ${MOST_DOCUMENTS} documents are taken at once.`);
      const planned = objects.map((one) => plan(resources, one, namespaces));
      const found: Result[] = [];
      // One after the other, as they are in the text: a namespace comes before what is in it.
      for (const one of planned) {
        found.push(await tried(one, dryRun, force));
        setResults([...found]);
      }
      if (!dryRun && found.every(({ error }) => error === null)) {
        announce(found.length === 1 ? `${found[0]?.title ?? ''} is applied` : `${found.length} objects are applied`);
        setText('');
        setForce(false);
        dropDraft(user, DRAFT);
      }
    } catch (error) {
      setProblem(told(error));
      setResults(null);
    } finally {
      setBusy(false);
    }
  };
  const isSeen = results !== null && results.every(({ error, isDone }) => error === null && !isDone);
  const hasConflict = results?.some(({ error }) => isConflict(error)) === true;
  const take = (files: FileList | null | undefined) => {
    const all = [...(files ?? [])].map((file) => file.text());
    void Promise.all(all).then((texts) => change([text.trim(), ...texts].filter((one) => one !== '').join('\n---\n')));
  };
  return (
    <section class="apply-page editor">
      <header class="heading">
        <h1 tabIndex={-1}>Create or apply</h1>
        <div class="actions">
          <select
            aria-label="Begin with an example"
            value=""
            onChange={(event) =>
              change(
                Object.hasOwn(EXAMPLES, event.currentTarget.value) ? (EXAMPLES[event.currentTarget.value] ?? '') : '',
              )
            }
          >
            <option value="">Example…</option>
            {Object.keys(EXAMPLES).map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
          <label class="button">
            Files…
            <input
              type="file"
              multiple
              class="hidden"
              accept=".yaml,.yml,.json"
              onChange={(event) => take(event.currentTarget.files)}
            />
          </label>
        </div>
      </header>
      <p class="muted">
        Documents are separated by a line of three dashes. An object without a namespace goes to{' '}
        <strong>{visible(namespaces.length === 1 ? (namespaces[0] ?? '') : 'default')}</strong>. Fields that others own
        are not taken over without a question.
      </p>
      <CodeEditor
        label="Objects as YAML"
        value={text}
        readOnly={busy}
        fields={fields}
        onInput={change}
        onSubmit={() => void run(!isSeen)}
      />
      <div class="buttons">
        <button
          type="button"
          class={isSeen ? '' : 'main'}
          disabled={busy || text.trim() === ''}
          onClick={() => void run(true)}
        >
          Show what would change
        </button>
        <button
          type="button"
          class={isSeen ? 'main' : ''}
          disabled={busy || text.trim() === ''}
          onClick={() => void run(false)}
        >
          Apply
        </button>
        {(hasConflict || force) && (
          <label>
            <input type="checkbox" checked={force} onChange={(event) => setForce(event.currentTarget.checked)} /> take
            over fields of others
          </label>
        )}
        <small class="muted">Ctrl+Enter shows, then applies</small>
      </div>
      {problem !== '' && (
        <p class="problem" role="alert">
          {visible(problem)}
        </p>
      )}
      {results?.map((one, at) => (
        <ResultView key={`${one.title}/${at}`} result={one} />
      ))}
    </section>
  );
}

function ResultView({ result }: { result: Result }) {
  const { planned, outcome, error, isDone } = result;
  const what = outcome?.before === null ? 'created' : result.before === result.after ? 'unchanged' : 'changed';
  const word = error !== null ? 'refused' : isDone ? what : what === 'unchanged' ? what : `would be ${what}`;
  return (
    <section class="panel result">
      <header>
        <h2>
          {isDone && planned !== null && outcome !== null ? (
            <a href={objectHref(planned.resource, planned.namespace, outcome.after.metadata.name)}>
              {visible(result.title)}
            </a>
          ) : (
            visible(result.title)
          )}
        </h2>
        <Status word={word} tone={error !== null ? 'bad' : what === 'unchanged' ? 'idle' : 'good'} />
      </header>
      {error !== null && <p class="why-box">{visible(told(error))}</p>}
      {outcome?.warnings.map((warning) => (
        <p key={warning} class="notice">
          {visible(warning)}
        </p>
      ))}
      {error === null && !isDone && what !== 'unchanged' && (
        <DiffView before={result.before} after={result.after} label={`What would change in ${result.title}`} />
      )}
    </section>
  );
}
