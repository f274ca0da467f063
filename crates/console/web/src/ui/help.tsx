// The list of keys and their actions on the current page.

import { boundKeys } from './keys';
import { Dialog } from './dialog';

export function Help({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl class="keys">
        {boundKeys().map(({ keys, does }) => (
          <div key={keys}>
            <dt>
              {keys.split(' ').map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
        <div>
          <dt>
            <kbd>Esc</kbd>
          </dt>
          <dd>close, or leave a field</dd>
        </div>
      </dl>
      <p>
        <a href="/console/assets/licenses.txt" target="_blank">
          Licences of what is in this page
        </a>
      </p>
    </Dialog>
  );
}
