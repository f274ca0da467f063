// Containers of a pod or of a template: images, ports, resources, restarts, and why one does not run.

import { at, text } from '../../../lib/objects';
import { visible } from '../../../lib/visible';
import { whyContainer } from '../../../lib/why';
import { Age } from '../../../ui/age';
import { Status } from '../../../ui/status';
import { Panel } from './blocks';

const list = (value: unknown): unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);

function ports(container: unknown): string {
  return list(at(container, 'ports'))
    .map((port) => {
      const name = text(at(port, 'name'));
      const protocol = text(at(port, 'protocol'));
      return `${name === '' ? '' : `${name} `}${text(at(port, 'containerPort'))}${protocol === '' || protocol === 'TCP' ? '' : `/${protocol}`}`;
    })
    .join(', ');
}

function resources(container: unknown): string {
  const part = (which: string) => {
    const found = Object.entries((at(container, 'resources', which) ?? {}) as Record<string, unknown>);
    return found.map(([name, value]) => `${name} ${text(value)}`).join(', ');
  };
  const [requests, limits] = [part('requests'), part('limits')];
  return [requests === '' ? '' : `requests ${requests}`, limits === '' ? '' : `limits ${limits}`]
    .filter((one) => one !== '')
    .join('; ');
}

function Row({ container, status, role }: { container: unknown; status: unknown; role: string }) {
  const name = text(at(container, 'name'));
  const why = status === undefined ? null : whyContainer(status);
  const running = at(status, 'state', 'running');
  const ended = at(status, 'state', 'terminated');
  const word = why?.word ?? (running !== undefined ? 'Running' : ended !== undefined ? 'Completed' : 'Waiting');
  const restarts = at(status, 'restartCount');
  const last = text(at(status, 'lastState', 'terminated', 'finishedAt'));
  const isReady = at(status, 'ready') === true;
  return (
    <li class="container">
      <div class="line-of">
        <strong>{visible(name)}</strong>
        {role !== '' && <span class="tag">{role}</span>}
        {status !== undefined && (
          <Status
            word={word}
            tone={running !== undefined && !isReady && role === '' ? 'warn' : undefined}
            title={isReady ? 'ready' : 'not ready'}
          />
        )}
        {typeof restarts === 'number' && restarts > 0 && (
          <span class="is-warn">
            {restarts} {restarts === 1 ? 'restart' : 'restarts'}
            {last !== '' && (
              <>
                , last <Age since={last} suffix=" ago" />
              </>
            )}
          </span>
        )}
      </div>
      <code class="image">{visible(text(at(container, 'image')))}</code>
      {why !== null && why.message !== '' && <p class="why-box">{visible(why.message)}</p>}
      <p class="muted small">
        {[ports(container) === '' ? '' : `ports ${ports(container)}`, resources(container)]
          .filter((one) => one !== '')
          .join(' · ')}
      </p>
    </li>
  );
}

/** The containers of a pod spec, with their states where there are some. */
export function Containers({
  spec,
  status,
  title = 'Containers',
}: {
  spec: unknown;
  status?: unknown;
  title?: string;
}) {
  const statusOf = (which: string, name: string) =>
    list(at(status, which)).find((one) => at(one, 'name') === name) ?? (status === undefined ? undefined : {});
  const rows = [
    ...list(at(spec, 'initContainers')).map((container) => ({
      container,
      status: statusOf('initContainerStatuses', text(at(container, 'name'))),
      role: at(container, 'restartPolicy') === 'Always' ? 'sidecar' : 'init',
    })),
    ...list(at(spec, 'containers')).map((container) => ({
      container,
      status: statusOf('containerStatuses', text(at(container, 'name'))),
      role: '',
    })),
    ...list(at(spec, 'ephemeralContainers')).map((container) => ({
      container,
      status: statusOf('ephemeralContainerStatuses', text(at(container, 'name'))),
      role: 'ephemeral',
    })),
  ];
  if (rows.length === 0) return null;
  return (
    <Panel title={title} wide>
      <ul class="containers">
        {rows.map(({ container, status: its, role }) => (
          <Row key={`${role}/${text(at(container, 'name'))}`} container={container} status={its} role={role} />
        ))}
      </ul>
    </Panel>
  );
}
