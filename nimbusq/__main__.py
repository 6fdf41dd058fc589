from nimbusq.cli import main

main()
