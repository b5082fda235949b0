import { LEAST_SECONDS } from '../conformance/run.js';
import { ownVersion } from '../environment.js';
import { CONGESTION_CONTROLS } from '../plan.js';
import { MAX_SEED } from '../seed.js';

export const HELP = `pronghorn-lab ${ownVersion()}: loads a page in Chromium over HTTP/2 and HTTP/3 through an emulated link.

usage:
  pronghorn-lab run PLAN.toml [--out DIR] [--resume] [--seed N] [--profile NAME]... [--pronghorn PATH] [--chromium PATH]
                     [--watch-all] [--fail-if CONDITION]... [--wait] [--share-machine]
  pronghorn-lab page SPEC.toml --out DIR
  pronghorn-lab capture URL --out DIR [--wait-ms N] [--timeout SECONDS] [--resolve HOST=ADDR[:PORT]]... [--spki HASH]
                        [--insecure-certificate] [--keep-cookies] [--allow-status CODE] [--chromium PATH]
  pronghorn-lab capture --har FILE --out DIR [--keep-cookies] [--allow-status CODE]
  pronghorn-lab report DIR... [--fail-if CONDITION]...
  pronghorn-lab har DIR LOAD
  pronghorn-lab reproduce kiwee|cloudflare|tencent [--out DIR] [--resume] [--blocks N] [and as for run]
  pronghorn-lab conformance [--congestion NAMES] [--repeats N] [--seconds N] [--out DIR] [--seed N] [--pronghorn PATH]
                     [--wait] [--share-machine]

run      runs a plan's campaign; writes samples, table and report to DIR (default: lab-results/NAME-TIME)
page     generates a page from its specification
capture  loads a page in Chromium, or reads a HAR file with content, and records it for \`pronghorn replay\`
report   makes tables and report again from the samples in DIR; of several, counts their A/A controls together
har      writes one load of a campaign, by its number, to stdout as HAR 1.2
reproduce  runs the campaign of a published result by criteria that are written down first, and prints published
           beside measured with a verdict for each criterion
conformance  compares each congestion controller over TCP with its namesake over QUIC, on a fixed link

  --out DIR         output folder; it must not exist, or be empty
  --resume          go on with the campaign that is in DIR, after it was interrupted or killed
  --profile NAME    only this one of the plan's link profiles; may be given several times
  --blocks N        instead of the study's 50 blocks
  --congestion A,B  controllers to check: ${CONGESTION_CONTROLS.join(', ')} (default: all)
  --repeats N       transfers of each (default: 3)
  --seconds N       how long a transfer takes (default: 10, at least ${LEAST_SECONDS})
  --seed N          instead of the plan's seed; 0 to ${MAX_SEED}
  --pronghorn PATH  the program pronghorn (default: $PRONGHORN, target/release/pronghorn, the PATH)
  --chromium PATH   the browser (default: $CHROMIUM, Debian's place, the PATH)
  --watch-all       write NetLog and pictures of each load and keep them, not only for the rehearsal; slows the loads
  --fail-if COND    end with code 4 where this is true, such as 'h3.median > 1.1 * h2.median' or
                    'surely h3.firstByte.p90 > 300 ms on lte'; may be given several times
  --wait            wait while another campaign measures on this machine, instead of ending with code 75
  --share-machine   measure beside others that were given this too, and say so in the report;
                    PRONGHORN_LAB_SHARE_MACHINE=1 is the same
  --wait-ms N       how long to go on recording after the load event (2000), and for what is then on its way
  --timeout SECONDS when to stop waiting for the load event (60)
  --resolve HOST=ADDR[:PORT]  where a host is, instead of asking the name service; repeat for more; HOST may be *
  --spki HASH       accept certificates with the public key of this SHA-256, in base64
  --insecure-certificate  accept any certificate
  --keep-cookies    write cookies, authorization fields and posted forms too; they are left out otherwise
  --allow-status CODE  record a document that was answered with this status, which is an error otherwise
  --har FILE        take a HAR file with content instead of a URL
  --help, --version

The table goes to stdout, progress and errors to stderr.

exit codes:
  0    done (invalid or incomplete loads are in the table)
  1    a bug in pronghorn-lab
  2    wrong use of the command line
  3    done, but an arm has no valid, completed load
  4    done, and a condition of --fail-if is true
  65   a plan, page specification, link profile, samples file, recording or HAR file is malformed
  66   a file or folder that was named is not there
  69   pronghorn, Chromium, openssl or flock is missing, the link does not work here, or a page to capture cannot be loaded or
       was answered with another status than of success (--allow-status)
  73   the output folder cannot be made or is not empty, or a disk takes nothing more (--resume goes on)
  75   another campaign works in the folder, or measures on this machine
  77   network namespaces or the TUN device are not permitted
  130  interrupted; what was measured until then is in the output folder (of a capture nothing)
`;
