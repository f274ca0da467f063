// The page of the subjects that may do something: those of all bindings whose roles allow it.

import { useEffect, useMemo, useState } from 'preact/hooks';
import { getJson, told } from '../api/client';
import { discovery, fullName, type Resource } from '../api/discovery';
import { collectionPath } from '../api/paths';
import type { KubeObject, ObjectList } from '../api/types';
import { grantsOf, type Grant, type Question, type Roles } from '../lib/rbac';
import { counted } from '../lib/time';
import { visible } from '../lib/visible';
import { choices } from '../state/choices';
import { go, type Place, withParams } from '../state/router';
import { useStore } from '../state/store';
import { Problem } from '../ui/problem';
import { ObjectLink } from './object/overview/blocks';

const RBAC = { group: 'rbac.authorization.k8s.io', version: 'v1' };
/** How many roles or bindings are read at a time, and how often. */
const AT_A_TIME = 500;
const MOST_TIMES = 20;

async function all(plural: string, namespace: string, signal: AbortSignal): Promise<KubeObject[]> {
  const found: KubeObject[] = [];
  const path = collectionPath({ ...RBAC, plural }, namespace);
  let token = '';
  for (let time = 0; time < MOST_TIMES; time += 1) {
    const search = new URLSearchParams({ limit: String(AT_A_TIME), ...(token === '' ? {} : { continue: token }) });
    const part = await getJson<ObjectList>(`${path}?${search.toString()}`, { signal });
    found.push(...part.items);
    token = part.metadata.continue ?? '';
    if (token === '') return found;
  }
  throw new Error(`There are more than ${counted(found.length)} ${plural}, which are too many to read.`);
}

async function read(namespace: string, signal: AbortSignal): Promise<Roles> {
  const own = (plural: string) => (namespace === '' ? Promise.resolve([]) : all(plural, namespace, signal));
  const [clusterRoles, clusterBindings, roles, bindings] = await Promise.all([
    all('clusterroles', '', signal),
    all('clusterrolebindings', '', signal),
    own('roles'),
    own('rolebindings'),
  ]);
  return { clusterRoles, clusterBindings, roles, bindings };
}

const VERBS = ['get', 'list', 'watch', 'create', 'update', 'patch', 'delete', 'deletecollection'];

/** The resource of a name such as `pods`, `deploy`, `deployments.apps` or `pods/exec`. */
function resourceOf(resources: Resource[], text: string): { group: string; resource: string } | null {
  const [name = '', below] = text.trim().toLowerCase().split('/');
  const fits = (one: Resource) =>
    one.plural === name || fullName(one) === name || one.shortNames.includes(name) || one.kind.toLowerCase() === name;
  const found = resources.find((one) => one.preferred && fits(one));
  if (found === undefined) return null;
  return { group: found.group, resource: below === undefined ? found.plural : `${found.plural}/${below}` };
}

export function WhoPage({ place }: { place: Place }) {
  const { params } = place;
  const { resources } = useStore(discovery);
  const { namespaces } = useStore(choices);
  const verb = params.get('verb') ?? 'delete';
  const plural = params.get('resource') ?? 'secrets';
  const namespace = params.get('ns') ?? namespaces[0] ?? '';
  const name = params.get('name') ?? '';
  const [roles, setRoles] = useState<Roles | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    document.title = 'Who may · keelson';
  }, []);
  useEffect(() => {
    const abort = new AbortController();
    setError(null);
    read(namespace, abort.signal)
      .then(setRoles)
      .catch((failed: unknown) => !abort.signal.aborted && setError(failed));
    return () => abort.abort();
  }, [namespace, place.visit]);
  const resource = useMemo(() => resourceOf(resources, plural), [resources, plural]);
  const asked: Question | null = resource === null ? null : { verb, ...resource, namespace, name };
  const grants = roles === null || asked === null ? [] : grantsOf(roles, asked);
  const change = (changes: Record<string, string>) =>
    go(withParams(place, { verb, resource: plural, ns: namespace, name, ...changes }), { replace: true });
  return (
    <section class="who-page">
      <h1 tabIndex={-1}>Who may</h1>
      <form class="toolbar" onSubmit={(event) => event.preventDefault()}>
        <Field label="Verb" value={verb} list={VERBS} onChange={(next) => change({ verb: next })} />
        <Field
          label="Resource"
          value={plural}
          list={resources.filter((one) => one.preferred).map(fullName)}
          onChange={(next) => change({ resource: next })}
        />
        <Field label="Namespace" value={namespace} hint="all" onChange={(next) => change({ ns: next })} />
        <Field label="Name" value={name} hint="any" onChange={(next) => change({ name: next })} />
      </form>
      {error !== null && (
        <Problem error={error}>
          <p>This needs the right to list roles and bindings: {visible(told(error))}</p>
        </Problem>
      )}
      {resources.length > 0 && resource === null && <p role="alert">The server has no resource of this name.</p>}
      {roles === null && error === null && <p class="loading">Reading roles and bindings…</p>}
      {roles !== null && asked !== null && <Grants grants={grants} asked={asked} />}
      <p class="muted hint">
        By roles and bindings. The group system:masters may do everything. Webhooks and other authorizers may allow or
        refuse more.
      </p>
    </section>
  );
}

interface FieldProps {
  label: string;
  value: string;
  hint?: string;
  list?: string[];
  onChange: (value: string) => void;
}

function Field({ label, value, hint, list, onChange }: FieldProps) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  const id = `who-${label}`;
  return (
    <label class="stacked">
      {label}
      <input
        type="text"
        spellcheck={false}
        autocomplete="off"
        list={list === undefined ? undefined : id}
        placeholder={hint}
        value={typed}
        onInput={(event) => setTyped(event.currentTarget.value)}
        onChange={(event) => onChange(event.currentTarget.value.trim())}
      />
      {list !== undefined && (
        <datalist id={id}>
          {list.map((one) => (
            <option key={one} value={one} />
          ))}
        </datalist>
      )}
    </label>
  );
}

const PLURALS: Record<string, string> = {
  Role: 'roles',
  ClusterRole: 'clusterroles',
  RoleBinding: 'rolebindings',
  ClusterRoleBinding: 'clusterrolebindings',
};

function RbacLink({ kind, namespace, name }: { kind: string; namespace: string; name: string }) {
  const plural = Object.hasOwn(PLURALS, kind) ? PLURALS[kind] : undefined;
  if (plural === undefined) return <>{visible(name)}</>;
  return (
    <ObjectLink group={RBAC.group} plural={plural} namespace={kind.startsWith('Cluster') ? '' : namespace} name={name}>
      {visible(name)}
    </ObjectLink>
  );
}

function Grants({ grants, asked }: { grants: Grant[]; asked: Question }) {
  const where = asked.namespace === '' ? 'in the whole cluster' : `in ${asked.namespace}`;
  const what = `${asked.verb} ${asked.name === '' ? asked.resource : `${asked.resource} ${asked.name}`} ${where}`;
  if (grants.length === 0) return <p role="status">No role lets a subject {visible(what)}.</p>;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Subjects">
      <table class="plain">
        <caption>
          {counted(new Set(grants.map(({ subject }) => JSON.stringify(subject))).size)} may {visible(what)}
        </caption>
        <thead>
          <tr>
            <th scope="col">Subject</th>
            <th scope="col">Kind</th>
            <th scope="col">Role</th>
            <th scope="col">Bound by</th>
            <th scope="col">Objects</th>
          </tr>
        </thead>
        <tbody>
          {grants.map(({ subject, role, binding, names }, at) => (
            <tr key={at}>
              <th scope="row">
                {visible(subject.namespace === '' ? subject.name : `${subject.namespace}/${subject.name}`)}
              </th>
              <td>{visible(subject.kind)}</td>
              <td>
                <RbacLink kind={role.kind} namespace={binding.namespace} name={role.name} />{' '}
                <small>{visible(role.kind)}</small>
              </td>
              <td>
                <RbacLink kind={binding.kind} namespace={binding.namespace} name={binding.name} />{' '}
                <small>{binding.kind}</small>
              </td>
              <td>{visible(names.length === 0 ? 'all' : names.join(', '))}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
