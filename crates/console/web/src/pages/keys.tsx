// The page of all keys.

import { useEffect } from 'preact/hooks';
import { KEYMAP } from '../lib/keymap';

export function KeysPage() {
  useEffect(() => {
    document.title = 'Keys · keelson';
  }, []);
  return (
    <section class="keys-page">
      <h1 tabIndex={-1}>Keys</h1>
      <p class="muted">Keys work while no field has the focus. Two keys are pressed one after the other.</p>
      <div class="columns">
        {Object.values(KEYMAP).map(({ title, keys }) => (
          <section key={title} class="panel">
            <h2>{title}</h2>
            <dl class="keys">
              {Object.entries(keys).map(([key, does]) => (
                <div key={key}>
                  <dt>
                    {key.split(' ').map((one) => (
                      <kbd key={one}>{one}</kbd>
                    ))}
                  </dt>
                  <dd>{does}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
        <section class="panel">
          <h2>In fields and editors</h2>
          <dl class="keys">
            <div>
              <dt>
                <kbd>Esc</kbd>
              </dt>
              <dd>leave the field, close a dialog</dd>
            </div>
            <div>
              <dt>
                <kbd>Ctrl</kbd>
                <kbd>Enter</kbd>
              </dt>
              <dd>show what would change, then save</dd>
            </div>
            <div>
              <dt>
                <kbd>Ctrl</kbd>
                <kbd>F</kbd>
              </dt>
              <dd>search in the editor</dd>
            </div>
            <div>
              <dt>
                <kbd>Ctrl</kbd>
                <kbd>Space</kbd>
              </dt>
              <dd>complete by the schema</dd>
            </div>
          </dl>
        </section>
      </div>
    </section>
  );
}
