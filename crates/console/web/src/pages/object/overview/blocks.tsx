// The parts that overviews are made of: panels, facts, conditions, labels and links to objects.

import type { ComponentChildren } from 'preact';
import { discovery, preferredResource } from '../../../api/discovery';
import { listHref, objectHref } from '../../../lib/links';
import { text } from '../../../lib/objects';
import { visible } from '../../../lib/visible';
import { conditionsOf } from '../../../lib/why';
import { useStore } from '../../../state/store';
import { Age } from '../../../ui/age';
import { Status } from '../../../ui/status';

export function Panel(props: {
  title: string;
  wide?: boolean;
  aside?: ComponentChildren;
  children: ComponentChildren;
}) {
  return (
    <section class={`panel${props.wide === true ? ' wide' : ''}`}>
      <header>
        <h2>{props.title}</h2>
        {props.aside}
      </header>
      {props.children}
    </section>
  );
}

export type Fact = [string, ComponentChildren];

/** Names with values; those without a value are left out. */
export function Facts({ facts }: { facts: Fact[] }) {
  const shown = facts.filter(([, value]) => value !== '' && value !== undefined && value !== null && value !== false);
  if (shown.length === 0) return null;
  return (
    <dl class="facts">
      {shown.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{typeof value === 'string' ? visible(value) : value}</dd>
        </div>
      ))}
    </dl>
  );
}

interface LinkProps {
  group: string;
  plural: string;
  namespace: string;
  name: string;
  children?: ComponentChildren;
}

/** A link to an object; plain text where its kind is not served. */
export function ObjectLink({ group, plural, namespace, name, children }: LinkProps) {
  const { resources } = useStore(discovery);
  const resource = preferredResource(resources, group, plural);
  const shown = children ?? visible(name);
  if (resource === undefined || name === '') return <>{shown}</>;
  return <a href={objectHref(resource, resource.namespaced ? namespace : '', name)}>{shown}</a>;
}

/** Labels as links to the lists of the objects that have them. */
export function Labels(props: {
  labels: Record<string, unknown>;
  of: { group: string; version: string; plural: string };
  namespace: string;
}) {
  return (
    <span class="labels">
      {Object.entries(props.labels).map(([key, value]) => (
        <a
          key={key}
          class="label"
          href={listHref(props.of, { ns: props.namespace, labels: `${key}=${text(value)}` })}
          title={visible(`${key}=${text(value)}`)}
        >
          <span>{visible(key)}</span>
          {text(value) !== '' && <b>{visible(text(value))}</b>}
        </a>
      ))}
    </span>
  );
}

/** Conditions whose `True` is bad news. */
const BAD_IF_TRUE = /Pressure$|^Failed$|Unavailable$|^ReplicaFailure$|NonStructuralSchema|Terminating|Stalled/;

export function Conditions({ object }: { object: unknown }) {
  const conditions = conditionsOf(object);
  if (conditions.length === 0) return null;
  return (
    <Panel title="Conditions" wide>
      <div class="scroll" tabIndex={0} role="region" aria-label="Conditions">
        <table class="inner">
          <thead>
            <tr>
              <th scope="col">Type</th>
              <th scope="col">Status</th>
              <th scope="col">Reason</th>
              <th scope="col">Message</th>
              <th scope="col">Since</th>
            </tr>
          </thead>
          <tbody>
            {conditions.map(({ type, status, reason, message, since }) => {
              const isBad = BAD_IF_TRUE.test(type) ? status === 'True' : status === 'False';
              const tone = status === 'Unknown' ? 'warn' : isBad ? 'bad' : status === 'True' ? 'good' : 'idle';
              return (
                <tr key={type}>
                  <th scope="row">{visible(type)}</th>
                  <td>
                    <Status word={status} tone={tone} />
                  </td>
                  <td>{visible(reason)}</td>
                  <td class="prose">{visible(message)}</td>
                  <td>{since !== '' && <Age since={since} />}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}
