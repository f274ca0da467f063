// Overviews of kinds: what people look for first in pods, workloads, services, nodes and others.

import type { ComponentChildren } from 'preact';
import { discovery } from '../../../api/discovery';
import { pluralOf } from '../../../lib/kinds';
import { listHref } from '../../../lib/links';
import { at, text } from '../../../lib/objects';
import { selectorText } from '../../../lib/references';
import { visible } from '../../../lib/visible';
import { whyPod } from '../../../lib/why';
import { useStore } from '../../../state/store';
import { Age } from '../../../ui/age';
import { Status } from '../../../ui/status';
import type { Subject } from '../object';
import { Conditions, type Fact, Facts, ObjectLink, Panel } from './blocks';
import { Containers } from './containers';
import { Data } from './data';

const list = (value: unknown): unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);
const words = (value: unknown) => list(value).map(text).join(', ');
const age = (value: unknown): ComponentChildren => (text(value) === '' ? '' : <Age since={text(value)} />);

export function PodOverview({ subject: { object } }: { subject: Subject }) {
  const why = whyPod(object);
  const node = text(at(object, 'spec', 'nodeName'));
  const started = text(at(object, 'status', 'startTime'));
  return (
    <>
      {why !== '' && <p class="why-box big">{visible(why)}</p>}
      <Panel title="Pod">
        <Facts
          facts={[
            ['Node', node === '' ? 'not placed yet' : <ObjectLink group="" plural="nodes" namespace="" name={node} />],
            [
              'IP',
              list(at(object, 'status', 'podIPs'))
                .map((one) => text(at(one, 'ip')))
                .join(', ') || text(at(object, 'status', 'podIP')),
            ],
            ['Started', age(started)],
            ['Service class', text(at(object, 'status', 'qosClass'))],
            ['Restarts', text(at(object, 'spec', 'restartPolicy'))],
            ['Priority', text(at(object, 'spec', 'priorityClassName'))],
          ]}
        />
      </Panel>
      <Containers spec={at(object, 'spec')} status={at(object, 'status') ?? {}} />
      <Conditions object={object} />
    </>
  );
}

const COUNTS: Record<string, [string, string][]> = {
  'daemonsets.apps': [
    ['Wanted', 'desiredNumberScheduled'],
    ['Ready', 'numberReady'],
    ['Up to date', 'updatedNumberScheduled'],
    ['Available', 'numberAvailable'],
  ],
  'jobs.batch': [
    ['Running', 'active'],
    ['Succeeded', 'succeeded'],
    ['Failed', 'failed'],
  ],
};
const REPLICAS: [string, string][] = [
  ['Ready', 'readyReplicas'],
  ['Up to date', 'updatedReplicas'],
  ['Available', 'availableReplicas'],
];

function strategy(spec: unknown): string {
  const found = at(spec, 'strategy') ?? at(spec, 'updateStrategy');
  const rolling = at(found, 'rollingUpdate');
  const more = ['maxSurge', 'maxUnavailable', 'partition']
    .map((name) => [name, text(at(rolling, name))])
    .filter(([, value]) => value !== '')
    .map(([name = '', value = '']) => `${name} ${value}`);
  return [text(at(found, 'type')), ...more].filter((one) => one !== '').join(', ');
}

export function WorkloadOverview({ subject, name }: { subject: Subject; name: string }) {
  const { object } = subject;
  const spec = at(object, 'spec');
  const isJob = name === 'jobs.batch';
  const wanted = isJob ? (at(spec, 'completions') ?? 1) : at(spec, 'replicas');
  const counts = Object.hasOwn(COUNTS, name) ? (COUNTS[name] ?? []) : REPLICAS;
  const selector = selectorText(at(spec, 'selector') ?? {});
  return (
    <>
      <Panel title="Replicas">
        <div class="numbers">
          {wanted !== undefined && <Number title={isJob ? 'Completions' : 'Wanted'} value={text(wanted)} />}
          {counts.map(([title, field]) => (
            <Number key={field} title={title} value={text(at(object, 'status', field) ?? 0)} />
          ))}
        </div>
        <Facts
          facts={[
            ['Strategy', strategy(spec)],
            ['Selector', selector],
            ['Service', text(at(spec, 'serviceName'))],
            ['Parallelism', isJob ? text(at(spec, 'parallelism')) : ''],
            ['Retries', isJob ? text(at(spec, 'backoffLimit')) : ''],
            ['Started', isJob ? age(at(object, 'status', 'startTime')) : ''],
            ['Ended', isJob ? age(at(object, 'status', 'completionTime')) : ''],
            ['Revision', text(at(object, 'metadata', 'annotations', 'deployment.kubernetes.io/revision'))],
          ]}
        />
      </Panel>
      <Containers spec={at(spec, 'template', 'spec')} title="Containers of its pods" />
      <Conditions object={object} />
    </>
  );
}

function Number({ title, value }: { title: string; value: string }) {
  return (
    <div class="number-of">
      <strong>{visible(value)}</strong>
      <span>{title}</span>
    </div>
  );
}

export function CronJobOverview({ subject: { object } }: { subject: Subject }) {
  const spec = at(object, 'spec');
  return (
    <>
      <Panel title="Schedule">
        <Facts
          facts={[
            ['Schedule', <code key="s">{visible(text(at(spec, 'schedule')))}</code>],
            ['Time zone', text(at(spec, 'timeZone'))],
            ['Suspended', at(spec, 'suspend') === true ? <Status word="Suspended" tone="warn" /> : 'no'],
            ['Concurrency', text(at(spec, 'concurrencyPolicy'))],
            ['Last run', age(at(object, 'status', 'lastScheduleTime'))],
            ['Last success', age(at(object, 'status', 'lastSuccessfulTime'))],
            ['Running now', String(list(at(object, 'status', 'active')).length)],
          ]}
        />
      </Panel>
      <Containers spec={at(spec, 'jobTemplate', 'spec', 'template', 'spec')} title="Containers of its jobs" />
    </>
  );
}

export function ServiceOverview({ subject: { object } }: { subject: Subject }) {
  const spec = at(object, 'spec');
  const ingress = list(at(object, 'status', 'loadBalancer', 'ingress')).map(
    (one) => text(at(one, 'hostname')) || text(at(one, 'ip')),
  );
  return (
    <>
      <Panel title="Service">
        <Facts
          facts={[
            ['Type', text(at(spec, 'type'))],
            ['Cluster IP', words(at(spec, 'clusterIPs')) || text(at(spec, 'clusterIP'))],
            [
              'External',
              [...ingress, ...list(at(spec, 'externalIPs')).map(text), text(at(spec, 'externalName'))]
                .filter((one) => one !== '')
                .join(', '),
            ],
            ['Selector', selectorText(at(spec, 'selector') ?? {})],
            ['Affinity', text(at(spec, 'sessionAffinity'))],
          ]}
        />
      </Panel>
      <Panel title="Ports" wide>
        <table class="inner">
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">Port</th>
              <th scope="col">To</th>
              <th scope="col">Node port</th>
              <th scope="col">Protocol</th>
            </tr>
          </thead>
          <tbody>
            {list(at(spec, 'ports')).map((port, place) => (
              <tr key={place}>
                <th scope="row">{visible(text(at(port, 'name')))}</th>
                <td>{text(at(port, 'port'))}</td>
                <td>{visible(text(at(port, 'targetPort')))}</td>
                <td>{text(at(port, 'nodePort'))}</td>
                <td>{visible(text(at(port, 'protocol')))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Panel>
    </>
  );
}

export function IngressOverview({ subject: { object } }: { subject: Subject }) {
  const namespace = text(at(object, 'metadata', 'namespace'));
  const rules = list(at(object, 'spec', 'rules'));
  return (
    <Panel title="Rules" wide>
      <table class="inner">
        <thead>
          <tr>
            <th scope="col">Host</th>
            <th scope="col">Path</th>
            <th scope="col">Service</th>
            <th scope="col">Port</th>
          </tr>
        </thead>
        <tbody>
          {rules.flatMap((rule, ruleAt) =>
            list(at(rule, 'http', 'paths')).map((path, pathAt) => {
              const service = at(path, 'backend', 'service');
              return (
                <tr key={`${ruleAt}/${pathAt}`}>
                  <th scope="row">{visible(text(at(rule, 'host')) || 'any')}</th>
                  <td>{visible(text(at(path, 'path')))}</td>
                  <td>
                    <ObjectLink group="" plural="services" namespace={namespace} name={text(at(service, 'name'))} />
                  </td>
                  <td>{visible(text(at(service, 'port', 'number')) || text(at(service, 'port', 'name')))}</td>
                </tr>
              );
            }),
          )}
        </tbody>
      </table>
    </Panel>
  );
}

export function NodeOverview({ subject: { object } }: { subject: Subject }) {
  const info = (name: string) => text(at(object, 'status', 'nodeInfo', name));
  const capacity = Object.entries((at(object, 'status', 'capacity') ?? {}) as Record<string, unknown>);
  const taints = list(at(object, 'spec', 'taints'));
  const roles = Object.keys((at(object, 'metadata', 'labels') ?? {}) as Record<string, unknown>)
    .filter((one) => one.startsWith('node-role.kubernetes.io/'))
    .map((one) => one.slice('node-role.kubernetes.io/'.length));
  return (
    <>
      <Panel title="Node">
        <Facts
          facts={[
            ['Roles', roles.join(', ')],
            [
              'Addresses',
              list(at(object, 'status', 'addresses'))
                .map((one) => `${text(at(one, 'type'))} ${text(at(one, 'address'))}`)
                .join(', '),
            ],
            ['Kubelet', info('kubeletVersion')],
            ['System', [info('osImage'), info('architecture')].filter((one) => one !== '').join(', ')],
            ['Kernel', info('kernelVersion')],
            ['Runtime', info('containerRuntimeVersion')],
            ['Pod addresses', text(at(object, 'spec', 'podCIDR'))],
          ]}
        />
      </Panel>
      {capacity.length > 0 && (
        <Panel title="Capacity">
          <table class="inner">
            <thead>
              <tr>
                <th scope="col">Resource</th>
                <th scope="col" class="number">
                  Capacity
                </th>
                <th scope="col" class="number">
                  For pods
                </th>
              </tr>
            </thead>
            <tbody>
              {capacity.map(([name, value]) => (
                <tr key={name}>
                  <th scope="row">{visible(name)}</th>
                  <td class="number">{visible(text(value))}</td>
                  <td class="number">{visible(text(at(object, 'status', 'allocatable', name)))}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Panel>
      )}
      {taints.length > 0 && (
        <Panel title="Taints">
          <ul>
            {taints.map((taint, place) => (
              <li key={place}>
                <code>
                  {visible(
                    `${text(at(taint, 'key'))}${text(at(taint, 'value')) === '' ? '' : `=${text(at(taint, 'value'))}`}`,
                  )}
                </code>{' '}
                {visible(text(at(taint, 'effect')))}
              </li>
            ))}
          </ul>
        </Panel>
      )}
      <Conditions object={object} />
    </>
  );
}

export function DataOverview({ subject: { object }, isSecret }: { subject: Subject; isSecret: boolean }) {
  return (
    <>
      {isSecret && (
        <Panel title="Secret">
          <Facts
            facts={[
              ['Type', text(at(object, 'type'))],
              ['Immutable', at(object, 'immutable') === true ? 'yes' : ''],
            ]}
          />
        </Panel>
      )}
      <Data object={object} isSecret={isSecret} />
    </>
  );
}

export function VolumeOverview({ subject: { object } }: { subject: Subject }) {
  const spec = at(object, 'spec');
  const claim = at(spec, 'claimRef');
  const [namespace, name] = [text(at(claim, 'namespace')), text(at(claim, 'name'))];
  const volume = text(at(spec, 'volumeName'));
  const storage = text(at(object, 'status', 'capacity', 'storage')) || text(at(spec, 'capacity', 'storage'));
  const storageClass = text(at(spec, 'storageClassName'));
  const facts: Fact[] = [
    ['Capacity', storage],
    ['Wanted', text(at(spec, 'resources', 'requests', 'storage'))],
    ['Access', words(at(spec, 'accessModes'))],
    ['Mode', text(at(spec, 'volumeMode'))],
    ['Reclaim policy', text(at(spec, 'persistentVolumeReclaimPolicy'))],
    [
      'Class',
      storageClass === '' ? (
        ''
      ) : (
        <ObjectLink group="storage.k8s.io" plural="storageclasses" namespace="" name={storageClass} />
      ),
    ],
    ['Volume', volume === '' ? '' : <ObjectLink group="" plural="persistentvolumes" namespace="" name={volume} />],
    [
      'Claim',
      name === '' ? (
        ''
      ) : (
        <ObjectLink group="" plural="persistentvolumeclaims" namespace={namespace} name={name}>
          {visible(`${namespace}/${name}`)}
        </ObjectLink>
      ),
    ],
    ['Driver', text(at(spec, 'csi', 'driver'))],
  ];
  return (
    <>
      <Panel title="Volume">
        <Facts facts={facts} />
      </Panel>
      <Conditions object={object} />
    </>
  );
}

export function RoleOverview({ subject: { object } }: { subject: Subject }) {
  const rules = list(at(object, 'rules'));
  return (
    <Panel title="What it allows" wide>
      <div class="scroll" tabIndex={0} role="region" aria-label="Rules">
        <table class="inner">
          <thead>
            <tr>
              <th scope="col">Verbs</th>
              <th scope="col">Resources</th>
              <th scope="col">Groups</th>
              <th scope="col">Names</th>
            </tr>
          </thead>
          <tbody>
            {rules.map((rule, place) => (
              <tr key={place}>
                <th scope="row">
                  {list(at(rule, 'verbs')).map((verb) => (
                    <span
                      key={text(verb)}
                      class={`tag${['*', 'delete', 'deletecollection', 'escalate', 'impersonate', 'bind'].includes(text(verb)) ? ' is-warn' : ''}`}
                    >
                      {visible(text(verb))}
                    </span>
                  ))}
                </th>
                <td>{visible(words(at(rule, 'resources')) || words(at(rule, 'nonResourceURLs')))}</td>
                <td>
                  {visible(
                    list(at(rule, 'apiGroups'))
                      .map((one) => text(one) || 'core')
                      .join(', '),
                  )}
                </td>
                <td>{visible(words(at(rule, 'resourceNames')) || 'all')}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rules.length === 0 && <p class="muted">Nothing.</p>}
    </Panel>
  );
}

export function BindingOverview({ subject: { object } }: { subject: Subject }) {
  const namespace = text(at(object, 'metadata', 'namespace'));
  const kind = text(at(object, 'roleRef', 'kind'));
  const name = text(at(object, 'roleRef', 'name'));
  return (
    <>
      <Panel title="Role">
        <ObjectLink
          group="rbac.authorization.k8s.io"
          plural={kind === 'Role' ? 'roles' : 'clusterroles'}
          namespace={namespace}
          name={name}
        >
          {visible(`${kind} ${name}`)}
        </ObjectLink>
      </Panel>
      <Panel title="Who has it">
        <ul>
          {list(at(object, 'subjects')).map((one, place) => {
            const [its, space] = [text(at(one, 'name')), text(at(one, 'namespace'))];
            const shown = `${text(at(one, 'kind'))} ${space === '' ? '' : `${space}/`}${its}`;
            return (
              <li key={place}>
                {at(one, 'kind') === 'ServiceAccount' ? (
                  <ObjectLink group="" plural="serviceaccounts" namespace={space} name={its}>
                    {visible(shown)}
                  </ObjectLink>
                ) : (
                  visible(shown)
                )}
              </li>
            );
          })}
        </ul>
      </Panel>
    </>
  );
}

export function DefinitionOverview({ subject: { object } }: { subject: Subject }) {
  const { resources } = useStore(discovery);
  const [group, plural, kind] = [
    text(at(object, 'spec', 'group')),
    text(at(object, 'spec', 'names', 'plural')),
    text(at(object, 'spec', 'names', 'kind')),
  ];
  const served = resources.find((one) => one.group === group && one.plural === plural && one.preferred);
  return (
    <>
      <Panel title="Definition">
        <Facts
          facts={[
            [
              'Objects',
              served === undefined ? visible(kind) : <a href={listHref(served)}>{visible(pluralOf(kind))}</a>,
            ],
            ['Group', group],
            ['Scope', text(at(object, 'spec', 'scope'))],
            ['Short names', words(at(object, 'spec', 'names', 'shortNames'))],
            ['Stored in', words(at(object, 'status', 'storedVersions'))],
            ['Conversion', text(at(object, 'spec', 'conversion', 'strategy'))],
          ]}
        />
      </Panel>
      <Panel title="Versions">
        <table class="inner">
          <thead>
            <tr>
              <th scope="col">Version</th>
              <th scope="col">Served</th>
              <th scope="col">Stored</th>
              <th scope="col">Deprecated</th>
            </tr>
          </thead>
          <tbody>
            {list(at(object, 'spec', 'versions')).map((version) => (
              <tr key={text(at(version, 'name'))}>
                <th scope="row">{visible(text(at(version, 'name')))}</th>
                {['served', 'storage', 'deprecated'].map((field) => (
                  <td key={field}>{at(version, field) === true ? 'yes' : ''}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </Panel>
      <Conditions object={object} />
    </>
  );
}

export function EventOverview({ subject: { object } }: { subject: Subject }) {
  const about = at(object, 'involvedObject') ?? at(object, 'regarding');
  return (
    <Panel title={text(at(object, 'reason')) || 'Event'} wide>
      <p class="prose">{visible(text(at(object, 'message')) || text(at(object, 'note')))}</p>
      <Facts
        facts={[
          [
            'About',
            `${text(at(about, 'kind'))} ${text(at(about, 'namespace'))}${text(at(about, 'namespace')) === '' ? '' : '/'}${text(at(about, 'name'))}`,
          ],
          ['Times', text(at(object, 'count')) || text(at(object, 'series', 'count'))],
          ['First', age(at(object, 'firstTimestamp') ?? at(object, 'eventTime'))],
          ['Last', age(at(object, 'lastTimestamp') ?? at(object, 'series', 'lastObservedTime'))],
          ['From', text(at(object, 'source', 'component')) || text(at(object, 'reportingComponent'))],
        ]}
      />
    </Panel>
  );
}

export function GenericOverview({ subject: { object } }: { subject: Subject }) {
  const facts = Object.entries((at(object, 'spec') ?? {}) as Record<string, unknown>)
    .filter(([, value]) => ['string', 'number', 'boolean'].includes(typeof value))
    .slice(0, 12)
    .map(([name, value]): Fact => [visible(name), text(value)]);
  return (
    <>
      {facts.length > 0 && (
        <Panel title="Spec">
          <Facts facts={facts} />
        </Panel>
      )}
      <Conditions object={object} />
    </>
  );
}
